// What the seeds share: one PostgreSQL whose clock can be moved, one sink, three relay processes of one application and
// two of another, two workers that use only the SQL functions, and the producer processes. Relays and producers run
// this Waybill or another checkout. Each seed has its own namespace, so several run at once and are judged separately;
// a fault of a relay or of the clock affects all of them.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import pg from 'pg';

import { migrateUp } from '../../../src/database/migrate.js';
import { startPostgres } from '../../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../../src/dev/embedded-postgres.js';
import { findCompiler, startWithMovableClock } from '../../support/movable-clock.js';
import type { MovableClock } from '../../support/movable-clock.js';
import { mutations, mutationSql } from './mutations.js';
import type { MutationName } from './mutations.js';
import { routesTo, whenDead, workerDestinations } from './plan.js';
import type { Served } from './plan.js';
import { ProducerPool } from './producers.js';
import { RelayProcess, retry } from './relays.js';
import { SecondApplication } from './second-application.js';
import { Sink } from './sink.js';

const batchSizes = [4, 25, 300];

export type WorldOptions = {
  /** The guards that are removed. */
  mutations?: readonly MutationName[];
  /** The checkout whose Waybill relays and producers run; without it, this one. */
  root?: string;
  mostProducers?: number;
  /** Only the first application, and a correct clock. */
  plain?: boolean;
  migrate?: (url: string) => Promise<unknown>;
};

export class World {
  readonly server: PostgresServer;
  /** Undefined without a C compiler. */
  readonly clock: MovableClock | undefined;
  readonly pool: pg.Pool;
  readonly sink: Sink;
  /** The current process; earlier ones are stopped at the end. */
  producers: ProducerPool;
  readonly #pools: ProducerPool[] = [];
  readonly relays: RelayProcess[] = [];
  /** None if the relays are of another version. */
  readonly workers: RelayProcess[] = [];
  billing: SecondApplication | undefined;
  /** Relays and workers that no seed uses for a fault at present. */
  readonly unharmed: RelayProcess[] = [];
  readonly directory: string;

  readonly #mostProducers: number | undefined;

  private constructor(
    server: PostgresServer,
    clock: MovableClock | undefined,
    sink: Sink,
    { root, mostProducers }: WorldOptions,
  ) {
    this.directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-order-'));
    this.server = server;
    this.clock = clock;
    this.pool = new pg.Pool({ connectionString: server.url, max: 40 });
    this.pool.on('error', () => {});
    this.sink = sink;
    this.#mostProducers = mostProducers;
    this.producers = this.produceWith(root);
  }

  static async start(options: WorldOptions = {}): Promise<World> {
    const { mutations: broken = [], root, migrate, plain } = options;
    const settings = { max_connections: '200', fsync: 'off', deadlock_timeout: '100ms' };
    const compiler = plain ? undefined : findCompiler();
    const clock =
      compiler === undefined ? undefined : await startWithMovableClock(compiler, settings);
    const server = clock?.server ?? (await startPostgres({ settings }));
    const world = new World(server, clock, await Sink.start(), options);
    try {
      await (migrate ?? ((url: string) => migrateUp({ url })))(server.url);
      for (const name of broken) await world.pool.query(mutationSql(mutations[name]));
      const relays = ['a', 'b', 'c'].map((letter, index) =>
        world.addRelay(`relay-${letter}`, batchSizes[index], root),
      );
      if (root === undefined) await world.addWorkers();
      await Promise.all([...relays, ...world.workers].map((process) => process.start()));
      world.unharmed.push(...relays, ...world.workers);
      if (!plain) await world.addBilling();
    } catch (error) {
      await world.remove();
      throw error;
    }
    return world;
  }

  /** One more process, not started yet, which no seed uses for a fault. */
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

  /** Destinations that no relay knows, and the processes that serve them. */
  async addWorkers(): Promise<void> {
    const { maxAttempts, baseMs, maxMs } = retry;
    for (const name of workerDestinations)
      await this.query(
        `SELECT outbox.define_destination($1, p_max_attempts => $2, p_retry_base_ms => $3, p_retry_max_ms => $4,
                  p_when_dead => $5)`,
        [name, maxAttempts, baseMs, maxMs, whenDead[name]],
      );
    for (const { topic, to } of routesTo(workerDestinations))
      await this.query('SELECT outbox.define_route($1, $2)', [topic, to]);
    const [databaseUrl, sinkUrl, directory] = [this.server.url, this.sink.url, this.directory];
    for (const [name, batchSize] of [
      ['worker-a', 3],
      ['worker-b', 6],
    ] as const)
      this.workers.push(
        new RelayProcess(name, {
          databaseUrl,
          sinkUrl,
          directory,
          batchSize,
          script: '../order/worker.mjs',
        }),
      );
  }

  async addBilling(): Promise<void> {
    this.billing = new SecondApplication(this);
    await this.billing.startNext();
    await this.billing.startNext();
  }

  /** The destinations that are served. */
  get served(): Served {
    return { workers: this.workers.length > 0, billing: this.billing !== undefined };
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

  /**
   * Queries the database, again after a lost connection: one that is being opened while the clock jumps ahead is cut.
   */
  async query<Row extends pg.QueryResultRow>(sql: string, values: unknown[] = []): Promise<Row[]> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return (await this.pool.query<Row>(sql, values)).rows;
      } catch (error) {
        if (attempt === 5 || error instanceof pg.DatabaseError) throw error;
      }
    }
  }

  /** What the server's log says about processes of the server that crashed. */
  serverCrashes(): string {
    const lines = readFileSync(this.server.logFile, 'utf8').split('\n');
    const crashes = lines.filter((line) => /PANIC|was terminated by signal/.test(line));
    return crashes.length === 0 ? 'its server did not crash' : crashes.join('\n');
  }

  async remove(): Promise<void> {
    await Promise.all([...this.relays, ...this.workers].map((process) => process.remove()));
    await this.billing?.remove();
    await Promise.all(this.#pools.map((pool) => pool.stop()));
    await this.sink.stop();
    await this.pool.end();
    await (this.clock ?? this.server).remove();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
