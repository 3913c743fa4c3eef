// One connection to Redis, shared by all calls, made again by the next call after it was lost. Redis answers in the
// order of the questions: when a call is given up, those behind it have no answer either and the answers could no
// longer be told apart, so the connection is dropped, and everything on it fails and is sent again.

import type * as Redis from 'redis';

import { errorText } from '../../errors.js';
import { loadPeer } from '../peer.js';

export type RedisAddress = {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  readonly username: string;
  readonly password: string;
  readonly database: number;
};

/** Redis refused, with its code; without one, nothing is known: the connection failed before an answer came. */
export type RedisFailure = {
  readonly code?: string;
  readonly cause?: string;
  readonly message: string;
};
export type RedisAnswer = string | null | RedisFailure;

/** What is used of the library's client, whose own type depends on its options. */
type Client = {
  connect(): Promise<unknown>;
  sendCommand<T>(command: readonly string[]): Promise<T>;
  destroy(): void;
};

/** `ready` may take its time to fail where nobody answers; `lost` is rejected at once when it is dropped. */
type Held = {
  readonly client: Client;
  readonly ready: Promise<unknown>;
  readonly lost: Promise<never>;
  readonly lose: (reason: unknown) => void;
};

/** After a fail-over the same address may lead to another server. */
const dropsConnection = new Set(['READONLY', 'MASTERDOWN']);

export class RedisConnection {
  readonly #address: RedisAddress;
  readonly #connectTimeoutMs: number;
  #library: typeof Redis | undefined;
  #held: Held | undefined;
  #closed = false;

  constructor(address: RedisAddress, connectTimeoutMs: number) {
    this.#address = address;
    this.#connectTimeoutMs = connectTimeoutMs;
  }

  async load(): Promise<void> {
    this.#library = await loadPeer('redis', 'redis', () => import('redis'));
  }

  /** One answer for each command, in order; never throws. */
  async ask(commands: readonly string[][], signal: AbortSignal): Promise<RedisAnswer[]> {
    const failAll = (error: unknown): RedisAnswer[] => commands.map(() => this.#failure(error));
    if (signal.aborted) return failAll(signal.reason);
    if (this.#closed) return failAll(new Error('the destination is closed'));
    const held = (this.#held ??= this.#connect());
    const drop = (): void => this.#drop(held, signal.reason);
    signal.addEventListener('abort', drop);
    try {
      await Promise.race([held.ready, held.lost]);
      const answers = await Promise.all(
        commands.map((command) =>
          held.client
            .sendCommand<string | null>(command)
            .catch((error: unknown) => this.#failure(error)),
        ),
      );
      if (answers.some((answer) => isFailure(answer) && dropsConnection.has(answer.code ?? '')))
        drop();
      return answers;
    } catch (error) {
      return failAll(error);
    } finally {
      signal.removeEventListener('abort', drop);
    }
  }

  close(): void {
    this.#closed = true;
    if (this.#held !== undefined) this.#drop(this.#held, new Error('the destination was closed'));
  }

  #connect(): Held {
    if (this.#library === undefined) throw new Error('the redis destination is not open');
    const { host, port, tls, username, password, database } = this.#address;
    const client = this.#library.createClient({
      socket: {
        host,
        port,
        connectTimeout: this.#connectTimeoutMs,
        // the next call connects again: nothing runs while nothing is to be sent
        reconnectStrategy: false,
        ...(tls && { tls }),
      },
      ...(username !== '' && { username }),
      ...(password !== '' && { password }),
      database,
      // understood by every server, and asks nothing that a user with few rights may not
      RESP: 2,
      maintNotifications: 'disabled',
      disableClientInfo: true,
      disableOfflineQueue: true,
      // the call's own signal ends it
      commandOptions: { timeout: 0 },
    });
    let lose: Held['lose'] = () => undefined;
    const lost = new Promise<never>((_resolve, reject) => (lose = reject));
    lost.catch(() => undefined);
    const held = { client, ready: this.#greet(client), lost, lose };
    const drop = (error: unknown): void => this.#drop(held, error);
    // whoever waits for an answer is told; without a listener an error would end the process
    client.on('error', drop);
    held.ready.catch(drop);
    return held;
  }

  /**
   * The first question is a short one: to somebody who is not logged in Redis answers long ones with a protocol
   * error instead of a code. Who may not ask it may still add entries.
   */
  async #greet(client: Client): Promise<void> {
    await client.connect();
    await client.sendCommand(['PING']).catch((error: unknown) => {
      if (this.#failure(error).code !== 'NOPERM') throw error;
    });
  }

  /** Everything that waits on it fails at once. */
  #drop(held: Held, reason: unknown): void {
    if (this.#held === held) this.#held = undefined;
    held.lose(reason);
    held.client.destroy();
  }

  #failure(error: unknown): RedisFailure {
    const message = errorText(error);
    if (this.#library !== undefined && error instanceof this.#library.ErrorReply)
      return { code: /^[A-Z]+\b/.exec(message)?.[0] ?? 'ERR', message };
    const { code } = (error ?? {}) as { code?: unknown };
    return { message, ...(typeof code === 'string' && { cause: code }) };
  }
}

function isFailure(answer: RedisAnswer): answer is RedisFailure {
  return typeof answer === 'object' && answer !== null;
}
