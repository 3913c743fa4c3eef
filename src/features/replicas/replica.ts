// Replica: a hot standby that answers reads. It is used while it is known to be a standby of this very database and
// lags no more than allowed. Otherwise, and for reads that it cannot answer, the primary answers.
//
// Lag is measured without comparing clocks: every second the primary's WAL position is sampled, and the position that
// the replica has replayed tells which sample it has reached (docs/internals/decisions/0024).

import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';

import { errorText } from '../../core/errors.js';
import { Database } from '../../database/connection.js';
import type { ResolvedDatabaseOptions } from '../../database/connection.js';
import { withDeadline } from '../../database/deadline.js';
import { readPosition, readReplayed } from './wal-position.js';
import type { Position } from './wal-position.js';

export type ReplicaStatus = {
  /** Whether reads use the replica. */
  usable: boolean;
  /** Why reads do not use it; null if they do. */
  reason: string | null;
  /** Age of the replica's data: everything committed longer ago than this is visible; null if unknown. */
  lagMs: number | null;
};

export type ReadFrom = 'primary' | 'replica';

export type ReadOptions<T> = {
  /** The answer must include everything that was committed up to this position. */
  after?: Position | undefined;
  /** How long to wait for the replica to reach `after` before the primary is used. Default 300. */
  maxWaitMs?: number;
  /** False for an answer that the primary should check, such as "not found" on a replica that lags. */
  isAnswer?: (answer: T) => boolean;
};

export type ReplicaSettings = {
  connections: number;
  applicationName: string;
  /** Called when reads begin or cease to use the replica. */
  onChange?: (status: ReplicaStatus) => void;
};

const probeEveryMs = 1000;
const probeDeadlineMs = 3000;
const waitStepMs = 20;
const samplesAtMost = 1000;

/** Recovery conflicts, which cancel a query on a standby: a second try may succeed. */
const conflictCodes = new Set(['40001', '40P01']);
/** Statement timeout: the primary must not run the same slow query again. */
const timeoutCode = '57014';

export class Replica {
  readonly #primary: Database;
  readonly #options: ResolvedDatabaseOptions;
  readonly #settings: ReplicaSettings;
  readonly #stop = new AbortController();
  #database: Database;
  #reason: string | null = 'it has not been looked at yet';
  /** Everything that was committed before this time of the process's clock is visible on the replica. */
  #completeAtMs: number | null = null;
  #told: boolean | undefined;
  #samples: { position: Position; atMs: number }[] = [];
  #probing: Promise<void> | undefined;
  #watching: Promise<void> | undefined;
  #fallbacks = 0;

  constructor(primary: Database, settings: ReplicaSettings) {
    const { replicaUrl: url, connectTimeoutMs } = primary.options;
    this.#primary = primary;
    this.#settings = settings;
    this.#options = {
      ...primary.options,
      url,
      directUrl: undefined,
      connectTimeoutMs: Math.min(connectTimeoutMs, probeDeadlineMs),
    };
    this.#database = this.#open();
  }

  /** Checks the replica now, and then every second. */
  async start(): Promise<void> {
    await this.probe();
    this.#watching = this.#watch();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
    await this.#database.close();
  }

  get status(): ReplicaStatus {
    const lagMs = this.#completeAtMs === null ? null : performance.now() - this.#completeAtMs;
    const { maxReplicaLagMs } = this.#options;
    const late = lagMs === null || lagMs > maxReplicaLagMs;
    const reason =
      this.#reason ??
      (late
        ? `it is ${lagMs === null ? 'of unknown age' : `${Math.round(lagMs / 1000)} s behind`}, and database.maxReplicaLagMs is ${maxReplicaLagMs}`
        : null);
    return { usable: reason === null, reason, lagMs };
  }

  /** How often the primary answered instead of the replica. */
  get fallbacks(): number {
    return this.#fallbacks;
  }

  /**
   * Uses the replica's answer only if it succeeded; otherwise the primary answers, which may know more. A query that
   * timed out on the replica fails.
   */
  async read<T>(
    work: (database: Database, from: ReadFrom) => Promise<T>,
    { after, maxWaitMs = 300, isAnswer = () => true }: ReadOptions<T> = {},
  ): Promise<{ answer: T; from: ReadFrom }> {
    const answered = await this.#ask(work, after, maxWaitMs);
    if (answered !== undefined && isAnswer(answered.answer))
      return { ...answered, from: 'replica' };
    this.#fallbacks += 1;
    return { answer: await work(this.#primary, 'primary'), from: 'primary' };
  }

  async #ask<T>(
    work: (database: Database, from: ReadFrom) => Promise<T>,
    after: Position | undefined,
    maxWaitMs: number,
  ): Promise<{ answer: T } | undefined> {
    const database = this.#database;
    for (let triesLeft = 2; triesLeft > 0 && this.status.usable; triesLeft -= 1) {
      try {
        if (after !== undefined && !(await reaches(database, after, maxWaitMs))) return undefined;
        return { answer: await work(database, 'replica') };
      } catch (error) {
        const code = error instanceof pg.DatabaseError ? error.code : undefined;
        if (code === timeoutCode) throw error;
        // a lost connection: check the replica now, so that other reads avoid it
        if (!(error instanceof pg.DatabaseError)) void this.probe();
        if (code === undefined || !conflictCodes.has(code)) return undefined;
      }
    }
    return undefined;
  }

  /** Checks the primary and the replica once. Never fails: `status` has the result. */
  probe(): Promise<void> {
    this.#probing ??= this.#probe().finally(() => (this.#probing = undefined));
    return this.#probing;
  }

  async #probe(): Promise<void> {
    try {
      await this.#look();
    } catch (error) {
      this.#reason = `it cannot be read: ${errorText(error)}`;
      // cut off queries that still wait for the replica; they are repeated on the primary
      const lost = this.#database;
      if (!this.#stop.signal.aborted) {
        this.#database = this.#open();
        void lost.close(0);
      }
    }
    const { status } = this;
    if (this.#told === status.usable || this.#stop.signal.aborted) return;
    this.#told = status.usable;
    this.#settings.onChange?.(status);
  }

  async #look(): Promise<void> {
    const atMs = performance.now();
    // read the primary's position first: a replica that has replayed it is complete up to this moment
    const primary = await this.#lookAtPrimary();
    // without the primary there is no new sample, so the replica's known lag grows
    if (primary === undefined) return;
    const looking = readIdentity(this.#database);
    const replica = await withDeadline('look at the replica', probeDeadlineMs, looking, () => {});
    if (!replica.isStandby) this.#reason = 'it is not a standby: it may have been promoted';
    else if (replica.identity !== primary.identity)
      this.#reason = 'it is a standby of another database';
    else if (!replica.hasSchema)
      this.#reason = `its login may not use the schema ${this.#options.schema}: grant it the roles of the primary's login`;
    else {
      this.#samples.push({ position: primary.position, atMs });
      this.#completeAtMs = await this.#completeAt(atMs, primary.clockMs);
      this.#reason = null;
      return;
    }
    this.#samples = [];
    this.#completeAtMs = null;
  }

  async #lookAtPrimary(): Promise<(Identity & { position: Position }) | undefined> {
    try {
      const identity = await readIdentity(this.#primary);
      return { ...identity, position: await readPosition(this.#primary) };
    } catch {
      return undefined;
    }
  }

  /** The later of two bounds: by WAL position, and by the last replayed commit. Both use only the primary's clock. */
  async #completeAt(lookedAtMs: number, primaryClockMs: number): Promise<number | null> {
    const { position, committedAtMs } = await readReplayed(this.#database);
    const reached = this.#samples.findLastIndex((sample) => sample.position <= position);
    this.#samples = this.#samples.slice(Math.max(reached, this.#samples.length - samplesAtMost, 0));
    const byLog = reached < 0 ? undefined : this.#samples[0]?.atMs;
    const byCommit =
      committedAtMs === null ? undefined : lookedAtMs - (primaryClockMs - committedAtMs);
    const known = [byLog, byCommit].filter((atMs) => atMs !== undefined);
    return known.length === 0 ? null : Math.min(Math.max(...known), performance.now());
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await delay(probeEveryMs, undefined, { signal, ref: false }).catch(() => {});
      if (!signal.aborted) await this.probe();
    }
  }

  #open(): Database {
    return new Database(this.#options, this.#settings);
  }
}

type Identity = { identity: string; isStandby: boolean; hasSchema: boolean; clockMs: number };

/** A standby has the same identity as its primary: that of the cluster and of the database in it. */
async function readIdentity(database: Database): Promise<Identity> {
  const [row] = await database.query<Identity>(
    'identify the database',
    `SELECT format('%s/%s', (SELECT c.system_identifier FROM pg_control_system() c), d.oid) AS identity, pg_is_in_recovery() AS "isStandby",
            (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "clockMs",
            coalesce((SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n WHERE n.nspname = $1), false) AS "hasSchema"
       FROM pg_database d WHERE d.datname = current_database()`,
    [database.options.schema],
  );
  if (row === undefined) throw new Error('the database does not say which it is');
  return row;
}

async function reaches(database: Database, after: Position, maxWaitMs: number): Promise<boolean> {
  const deadlineMs = performance.now() + maxWaitMs;
  for (;;) {
    const { position } = await readReplayed(database);
    if (position >= after) return true;
    if (performance.now() >= deadlineMs) return false;
    await delay(waitStepMs);
  }
}
