// What the seeds share: one PostgreSQL, one sink, three relay processes, the producer
// processes. Each seed keeps to a namespace of its
// own, so several run at once and are judged apart; what one does to a relay the others have to live with.

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

export class World {
  readonly server: PostgresServer;
  readonly pool: pg.Pool;
  readonly sink: Sink;
  readonly producers: ProducerPool;
  readonly relays: readonly RelayProcess[];
  /** Relays that nobody is tormenting just now. */
  readonly unharmed: RelayProcess[];
  readonly #directory: string;

  private constructor(
    server: PostgresServer,
    pool: pg.Pool,
    sink: Sink,
    relays: RelayProcess[],
    directory: string,
  ) {
    this.server = server;
    this.pool = pool;
    this.sink = sink;
    this.producers = new ProducerPool(server.url, directory);
    this.relays = relays;
    this.unharmed = [...relays];
    this.#directory = directory;
  }

  /** `mutation`: the guard that is taken out. */
  static async start(mutation?: keyof typeof mutations): Promise<World> {
    const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-order-'));
    const server = await startPostgres({
      settings: { max_connections: '200', fsync: 'off', deadlock_timeout: '100ms' },
    });
    await migrateUp({ url: server.url });
    const pool = new pg.Pool({ connectionString: server.url, max: 40 });
    pool.on('error', () => {});
    const broken = mutation === undefined ? undefined : mutations[mutation];
    if (broken !== undefined) await pool.query(mutationSql(broken));
    const sink = await Sink.start();
    const relays = batchSizes.map(
      (batchSize, index) =>
        new RelayProcess(`relay-${'abc'.charAt(index)}`, {
          databaseUrl: server.url,
          sinkUrl: sink.url,
          directory,
          batchSize,
        }),
    );
    const world = new World(server, pool, sink, relays, directory);
    try {
      await Promise.all(relays.map((relay) => relay.start()));
    } catch (error) {
      await world.remove();
      throw error;
    }
    return world;
  }

  async query<Row extends pg.QueryResultRow>(sql: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.pool.query<Row>(sql, values)).rows;
  }

  async remove(): Promise<void> {
    await Promise.all(this.relays.map((relay) => relay.kill()));
    await this.producers.stop();
    await this.sink.stop();
    await this.pool.end();
    await this.server.remove();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
