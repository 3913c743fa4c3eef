// Kafka client: connections to a cluster, and the requests of a producer. It uses the library's connections and
// protocol but not its producer. That one numbers batches in a way that, after concurrent sends or a partial failure, a
// broker can take a new batch for a repeated one and drop it. After `destroy`, it sends nothing more and every request
// in flight fails at once.

import { isIP } from 'node:net';

import type * as KafkaLibrary from '@platformatic/kafka';

import { version } from '../../core/version.js';
import type { Broker } from './options.js';

export type Library = typeof KafkaLibrary;
export type Connection = InstanceType<Library['Connection']>;
type ProduceArguments = Parameters<Library['produceV9']['api']['async']>;
export type ProduceResponse = Exclude<
  Awaited<ReturnType<Library['produceV9']['api']['async']>>,
  boolean
>;
export type KafkaRecord = ProduceArguments[3][number];
type BatchOptions = NonNullable<ProduceArguments[4]>;
type MetadataResponse = Awaited<ReturnType<Library['metadataV12']['api']['async']>>;

export type ClientOptions = {
  readonly brokers: readonly Broker[];
  readonly clientId: string;
  readonly timeoutMs: number;
  readonly tls: Readonly<Record<string, string>> | undefined;
  readonly sasl:
    | { readonly mechanism: string; readonly username: string; readonly password: string }
    | undefined;
};

/** One version of an API of the protocol. */
type Api<A extends unknown[], R> = {
  key: number;
  version: number;
  async: (connection: Connection, ...args: A) => Promise<R>;
};

const acknowledgedByAll = -1;
const longestConnectMs = 10_000;

export class Client {
  readonly #library: Library;
  readonly #options: ClientOptions;
  readonly #pool: InstanceType<Library['ConnectionPool']>;
  readonly #connections = new Set<Connection>();
  readonly #versions = new WeakMap<Connection, Map<number, { min: number; max: number }>>();
  #destroyed: Error | undefined;

  constructor(library: Library, options: ClientOptions) {
    this.#library = library;
    this.#options = options;
    const { clientId, timeoutMs, tls, sasl, brokers } = options;
    this.#pool = new library.ConnectionPool(clientId, {
      connectTimeout: Math.min(timeoutMs, longestConnectMs),
      // the relay's timeout comes first: it aborts the call, which destroys the connection
      requestTimeout: 2 * timeoutMs,
      ...(tls !== undefined && { tls }),
      // an IP address cannot be a server name
      ...(tls !== undefined &&
        tls['servername'] === undefined &&
        !brokers.some(({ host }) => isIP(host)) && { tlsServerName: true }),
      ...(sasl !== undefined && {
        sasl: {
          ...sasl,
          mechanism: sasl.mechanism.toUpperCase() as 'PLAIN' | 'SCRAM-SHA-256' | 'SCRAM-SHA-512',
        },
      }),
    });
    this.#pool.on('connecting', ({ connection }) => {
      this.#connections.add(connection);
      connection.on('close', () => this.#connections.delete(connection));
      // the library may report the end of a connection twice, and an error without a listener would end the process
      connection.on('error', () => undefined);
    });
  }

  destroy(reason: Error): void {
    this.#destroyed ??= reason;
    // destroyed instead of closed: a close waits until the other side has received everything
    for (const connection of this.#connections) connection.socket.destroy(reason);
    this.#connections.clear();
  }

  get destroyed(): boolean {
    return this.#destroyed !== undefined;
  }

  async connect(broker: Broker): Promise<Connection> {
    return this.#usable(() => this.#pool.get(broker));
  }

  async metadata(topics: string[], createTopics: boolean): Promise<MetadataResponse> {
    const { metadataV12, metadataV11, metadataV10, metadataV9 } = this.#library;
    const apis = [metadataV12.api, metadataV11.api, metadataV10.api, metadataV9.api];
    const connection = await this.#anyBroker();
    return answered(() => this.#ask(connection, apis, topics, createTopics, false));
  }

  async producerId(): Promise<{ producerId: bigint; producerEpoch: number }> {
    const { initProducerIdV5, initProducerIdV4, initProducerIdV3 } = this.#library;
    const apis = [initProducerIdV5.api, initProducerIdV4.api, initProducerIdV3.api];
    return this.#ask(await this.#anyBroker(), apis, null, 0, -1n, -1);
  }

  /** The answer has a code for each partition, also for those that succeeded. */
  async produce(
    connection: Connection,
    records: KafkaRecord[],
    options: BatchOptions,
  ): Promise<ProduceResponse> {
    const { produceV9, produceV8 } = this.#library;
    // from version 10 on, an answer names the new leader of a partition, and the library misreads what follows
    const apis = [produceV9.api, produceV8.api];
    const { timeoutMs } = this.#options;
    const response = await answered(() =>
      this.#ask(connection, apis, acknowledgedByAll, timeoutMs, records, options),
    );
    if (typeof response === 'boolean') throw new Error('the broker gave no answer to a produce');
    return response;
  }

  async #anyBroker(): Promise<Connection> {
    return this.#usable(() => this.#pool.getFirstAvailable([...this.#options.brokers]));
  }

  async #usable(get: () => Promise<Connection>): Promise<Connection> {
    this.#checkAlive();
    const connection = await get();
    this.#checkAlive();
    if (!this.#versions.has(connection)) {
      const { apiVersionsV3 } = this.#library;
      const { apiKeys } = await apiVersionsV3.api.async(connection, 'waybill', version);
      const ranges = apiKeys.map(
        ({ apiKey, minVersion: min, maxVersion: max }) => [apiKey, { min, max }] as const,
      );
      this.#versions.set(connection, new Map(ranges));
    }
    return connection;
  }

  /** Uses the newest version that both sides support. */
  async #ask<A extends unknown[], R>(
    connection: Connection,
    apis: readonly Api<A, R>[],
    ...args: A
  ): Promise<R> {
    this.#checkAlive();
    const api = apis.find(({ key, version: number }) => {
      const range = this.#versions.get(connection)?.get(key);
      return range !== undefined && range.min <= number && number <= range.max;
    });
    if (api === undefined) throw new this.#library.ProtocolError('UNSUPPORTED_VERSION');
    return api.async(connection, ...args);
  }

  #checkAlive(): void {
    if (this.#destroyed !== undefined) throw this.#destroyed;
  }
}

/** The library throws if any part of an answer has an error; the answer itself has the result of every part. */
async function answered<R>(ask: () => Promise<R>): Promise<R> {
  try {
    return await ask();
  } catch (error) {
    const { response } = error as { response?: R };
    if (response === undefined) throw error;
    return response;
  }
}
