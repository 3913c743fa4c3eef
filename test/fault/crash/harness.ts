// The parts of a crash run: its own PostgreSQL with durability on, the sink, producers and relays as separate
// processes, and monitoring of the queue while they run.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';

import { migrateUp } from '../../../src/database/migrate.js';
import { startPostgres } from '../../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../../src/dev/embedded-postgres.js';
import { Producers } from './producers.js';
import { RelaySlot } from './relay-slot.js';
import type { SlotOptions } from './relay-slot.js';
import { Sink } from './sink.js';

export const limits = {
  leaseMs: 2000,
  reapMs: 200,
  batchSize: 100,
  // fewer queries of an empty queue leave more processor time to the work
  pollMs: 20,
  stopDeadlineMs: 5000,
  fallbackPollMs: 200,
} as const;

/** A relay holds at most three batches for each of its three destinations. */
export const mostInFlight = 3 * 3 * limits.batchSize;
const longQueue = 5000;
const watchMs = 200;

export type HarnessOptions = { seed: number; relays: number; producers: number; fence: boolean };

export class Harness {
  readonly server: PostgresServer;
  readonly pool: pg.Pool;
  readonly sink: Sink;
  readonly producers: Producers;
  readonly slots: readonly [RelaySlot, ...RelaySlot[]];
  readonly #directory: string;
  /** The longest time that a lease outlived its expiry while the database was up. */
  mostOverdueMs = 0;
  #producing = true;
  #watching = true;
  readonly #watch: Promise<void>;

  private constructor(
    server: PostgresServer,
    pool: pg.Pool,
    sink: Sink,
    producers: Producers,
    slots: readonly [RelaySlot, ...RelaySlot[]],
    directory: string,
  ) {
    this.server = server;
    this.pool = pool;
    this.sink = sink;
    this.producers = producers;
    this.slots = slots;
    this.#directory = directory;
    this.#watch = this.#keepWatch();
  }

  static async start(options: HarnessOptions): Promise<Harness> {
    const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-crash-'));
    // durability is what is tested: fsync and synchronous_commit stay on
    const server = await startPostgres({ settings: { max_connections: '150' } });
    await migrateUp({ url: server.url });
    const pool = new pg.Pool({ connectionString: server.url, max: 5, application_name: 'harness' });
    pool.on('error', () => {});
    if (!options.fence)
      await pool.query(readFileSync(new URL('unfenced.sql', import.meta.url), 'utf8'));
    const sink = await Sink.start(directory);
    const slotOptions: SlotOptions = {
      databaseUrl: server.url,
      sinkUrl: sink.url,
      directory,
      relay: limits,
      // short delays keep the run short; with this many attempts, kills alone exhaust almost no message
      retry: { maxAttempts: 8, baseMs: 20, maxMs: 500 },
    };
    const first = await RelaySlot.open('relay-a', slotOptions);
    // its start defines the routes: without them messages would be unrouted
    await first.current();
    const others = await Promise.all(
      Array.from({ length: options.relays - 1 }, (_, index) =>
        RelaySlot.open(`relay-${String.fromCharCode(98 + index)}`, slotOptions),
      ),
    );
    const producers = await Producers.start(server.url, directory, {
      count: options.producers,
      seed: options.seed,
    });
    return new Harness(server, pool, sink, producers, [first, ...others], directory);
  }

  /** Queries the database, again after a lost connection, because it may be restarting. */
  async query<Row extends pg.QueryResultRow>(sql: string, values: unknown[] = []): Promise<Row[]> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return (await this.pool.query<Row>(sql, values)).rows;
      } catch (error) {
        if (attempt === 20 || (error instanceof pg.DatabaseError && !error.code?.startsWith('57P')))
          throw error;
        await delay(100);
      }
    }
  }

  /** The number of pending and leased deliveries, including retries. */
  async depth(): Promise<number> {
    const rows = await this.query<{ depth: number }>(
      `SELECT ((SELECT count(*) FROM outbox.deliveries) + (SELECT count(*) FROM outbox.leases))::int AS depth`,
    );
    return rows[0]?.depth ?? 0;
  }

  async #keepWatch(): Promise<void> {
    while (this.#watching) {
      try {
        const { rows } = await this.pool.query<{
          waiting: number;
          overdue: number;
        }>(
          `SELECT (SELECT count(*) FROM (SELECT FROM outbox.deliveries LIMIT ${longQueue}) d)::int AS waiting,
                  (SELECT coalesce(max(extract(epoch FROM clock_timestamp()
                            - greatest(expires_at, pg_postmaster_start_time()))) * 1000, 0)
                     FROM outbox.leases)::int AS overdue`,
        );
        const [row] = rows;
        this.producers.allow(this.#producing && (row?.waiting ?? 0) < longQueue);
        this.mostOverdueMs = Math.max(this.mostOverdueMs, row?.overdue ?? 0);
      } catch {
        // the database is down
      }
      await delay(watchMs);
    }
  }

  async finishProducing(): Promise<void> {
    this.#producing = false;
    this.producers.allow(false);
    await this.producers.finish();
  }

  /** Waits until nothing is pending or leased; returns how long that took, or null if it never happened. */
  async quiet(boundMs: number): Promise<number | null> {
    const startedMs = performance.now();
    while (performance.now() - startedMs < boundMs) {
      if ((await this.depth()) === 0) return performance.now() - startedMs;
      await delay(50);
    }
    return null;
  }

  /** Stops every relay cleanly; returns how many of their connections are left. */
  async stopRelays(): Promise<number> {
    await Promise.all(this.slots.map((slot) => slot.stop(2 * limits.stopDeadlineMs)));
    const startedMs = performance.now();
    for (;;) {
      const rows = await this.query<{ count: number }>(
        `SELECT count(*)::int AS count FROM pg_stat_activity WHERE application_name LIKE 'waybill%'`,
      );
      const count = rows[0]?.count ?? 0;
      // a backend takes a moment to notice that its client is gone
      if (count === 0 || performance.now() - startedMs > 2000) return count;
      await delay(20);
    }
  }

  async remove(): Promise<void> {
    this.#watching = false;
    await this.#watch;
    await Promise.all(this.slots.map((slot) => slot.close()));
    await this.producers.stop();
    await this.sink.stop();
    await this.pool.end();
    await this.server.remove();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
