// What the seeds share: one PostgreSQL, one sink, three relay processes, the producer processes, of this Waybill or of
// another one. Each seed keeps to a namespace of its own, so several run at once and are judged apart; what one does to
// a relay the others have to live with.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import pg from 'pg';

import { migrateUp } from '../../../src/database/migrate.js';
import { startPostgres } from '../../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../../src/dev/embedded-postgres.js';
import { mutations, mutationSql } from './mutations.js';
import { ProducerPool } from './producers.js';
import { RelayProcess } from './relays.js';
import { Sink } from './sink.js';

const batchSizes = [4, 25, 300];

export type WorldOptions = {
  /** The guard that is taken out. */
  mutation?: keyof typeof mutations | undefined;
  /** The checkout whose Waybill relays and producers run; without it, this one. */
  root?: string;
  mostProducers?: number;
  migrate?: (url: string) => Promise<unknown>;
};

export class World {
  readonly server: PostgresServer;
  readonly pool: pg.Pool;
  readonly sink: Sink;
  /** Whose turn it is; those before are stopped at the end. */
  producers: ProducerPool;
  readonly #pools: ProducerPool[] = [];
  readonly relays: RelayProcess[] = [];
  /** Relays that nobody is tormenting just now. */
  readonly unharmed: RelayProcess[] = [];
  readonly directory: string;

  readonly #mostProducers: number | undefined;

  private constructor(server: PostgresServer, sink: Sink, { root, mostProducers }: WorldOptions) {
    this.directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-order-'));
    this.server = server;
    this.pool = new pg.Pool({ connectionString: server.url, max: 40 });
    this.pool.on('error', () => {});
    this.sink = sink;
    this.#mostProducers = mostProducers;
    this.producers = this.produceWith(root);
  }

  static async start(options: WorldOptions = {}): Promise<World> {
    const { mutation, root, migrate } = options;
    const server = await startPostgres({
      settings: { max_connections: '200', fsync: 'off', deadlock_timeout: '100ms' },
    });
    const world = new World(server, await Sink.start(), options);
    try {
      await (migrate ?? ((url: string) => migrateUp({ url })))(server.url);
      const broken = mutation === undefined ? undefined : mutations[mutation];
      if (broken !== undefined) await world.pool.query(mutationSql(broken));
      const relays = ['a', 'b', 'c'].map((letter, index) =>
        world.addRelay(`relay-${letter}`, batchSizes[index], root),
      );
      await Promise.all(relays.map((relay) => relay.start()));
      world.unharmed.push(...relays);
    } catch (error) {
      await world.remove();
      throw error;
    }
    return world;
  }

  /** One more, which is not started yet, and which no seed torments. */
  addRelay(name: string, batchSize = 25, root?: string): RelayProcess {
    const relay = new RelayProcess(name, {
      databaseUrl: this.server.url,
      sinkUrl: this.sink.url,
      directory: this.directory,
      batchSize,
      ...(root !== undefined && { root }),
    });
    this.relays.push(relay);
    return relay;
  }

  /** From the next seed on. */
  produceWith(root: string | undefined): ProducerPool {
    this.producers = new ProducerPool(this.server.url, this.directory, {
      root,
      mostProcesses: this.#mostProducers,
    });
    this.#pools.push(this.producers);
    return this.producers;
  }

  async query<Row extends pg.QueryResultRow>(sql: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.pool.query<Row>(sql, values)).rows;
  }

  async remove(): Promise<void> {
    await Promise.all(this.relays.map((relay) => relay.kill()));
    await Promise.all(this.#pools.map((pool) => pool.stop()));
    await this.sink.stop();
    await this.pool.end();
    await this.server.remove();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
