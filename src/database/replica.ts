// A hot standby that answers what only reads. It is used while it is known to be one, of this very database, and no
// further behind than allowed; whenever it is not, and for whatever it cannot answer, the primary is asked instead.
//
// How old its rows are is measured without comparing clocks: each second the primary says how far its log has come, and
// what the replica has replayed says which of those seconds it has reached (docs/decisions/0024).

import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';

import { errorText } from '../errors.js';
import { Database, withDeadline } from './connection.js';
import type { ResolvedDatabaseOptions } from './connection.js';
import { readPosition, readReplayed } from './wal-position.js';
import type { Position } from './wal-position.js';

export type ReplicaStatus = {
  /** Reads go there. */
  usable: boolean;
  /** Why not; null if they do. */
  reason: string | null;
  /** It has everything that was committed so long ago; null if that is not known. */
  lagMs: number | null;
};

export type ReadFrom = 'primary' | 'replica';

export type ReadOptions<T> = {
  /** Everything that was committed up to here must be seen. */
  after?: Position | undefined;
  /** How long the replica may take to get there before the primary is asked. Default 300. */
  patienceMs?: number;
  /** What the replica does not find, or finds wrong, is asked again of the primary, where it may be otherwise. */
  isAnswer?: (answer: T) => boolean;
};

export type ReplicaSettings = {
  connections: number;
  applicationName: string;
  /** Reads go there now, or no longer do. */
  onChange?: (status: ReplicaStatus) => void;
};

const probeEveryMs = 1000;
const probeDeadlineMs = 3000;
const waitStepMs = 20;
const samplesAtMost = 1000;

/** Cancelled because the log could not wait for it: it may work a moment later. */
const conflictCodes = new Set(['40001', '40P01']);
/** Took too long: the primary shall not do it as well. */
const timeoutCode = '57014';

export class Replica {
  readonly #primary: Database;
  readonly #options: ResolvedDatabaseOptions;
  readonly #settings: ReplicaSettings;
  readonly #stop = new AbortController();
  #database: Database;
  #reason: string | null = 'it has not been looked at yet';
  /** What was committed before this is there; a time of this process. */
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

  /** Looks at it, and then again every second. */
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

  /** How often the primary answered in its place. */
  get fallbacks(): number {
    return this.#fallbacks;
  }

  /** Only a success of the replica counts: whatever else it says is asked again of the primary, which may know more. */
  async read<T>(
    work: (database: Database, from: ReadFrom) => Promise<T>,
    { after, patienceMs = 300, isAnswer = () => true }: ReadOptions<T> = {},
  ): Promise<{ answer: T; from: ReadFrom }> {
    const answered = await this.#ask(work, after, patienceMs);
    if (answered !== undefined && isAnswer(answered.answer))
      return { ...answered, from: 'replica' };
    this.#fallbacks += 1;
    return { answer: await work(this.#primary, 'primary'), from: 'primary' };
  }

  async #ask<T>(
    work: (database: Database, from: ReadFrom) => Promise<T>,
    after: Position | undefined,
    patienceMs: number,
  ): Promise<{ answer: T } | undefined> {
    const database = this.#database;
    for (let triesLeft = 2; triesLeft > 0 && this.status.usable; triesLeft -= 1) {
      try {
        if (after !== undefined && !(await reaches(database, after, patienceMs))) return undefined;
        return { answer: await work(database, 'replica') };
      } catch (error) {
        const code = error instanceof pg.DatabaseError ? error.code : undefined;
        if (code === timeoutCode) throw error;
        // somebody else shall not run into it
        if (!(error instanceof pg.DatabaseError)) void this.probe();
        if (code === undefined || !conflictCodes.has(code)) return undefined;
      }
    }
    return undefined;
  }

  /** Looks at both once. Never fails: the status says what was found. */
  probe(): Promise<void> {
    this.#probing ??= this.#probe().finally(() => (this.#probing = undefined));
    return this.#probing;
  }

  async #probe(): Promise<void> {
    try {
      await this.#look();
    } catch (error) {
      this.#reason = `it cannot be read: ${errorText(error)}`;
      // what waits for it is cut off, and asks the primary
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
    // the primary first: whoever has replayed what it says now is complete up to now
    const primary = await this.#lookAtPrimary();
    // nothing is known anew of the replica then, which is getting old
    if (primary === undefined) return;
    const looking = readIdentity(this.#database);
    const replica = await withDeadline('look at the replica', probeDeadlineMs, looking, () => {});
    if (!replica.isStandby) this.#reason = 'it is not a standby: it may have been promoted';
    else if (replica.identity !== primary.identity)
      this.#reason = 'it is a standby of another database';
    else if (!replica.hasSchema)
      this.#reason = `its login may not use the schema ${this.#options.schema}: grant it the roles of whoever reads`;
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

  /** By the log, or by the time of the last commit that was replayed, whichever says more. Both are the primary's own. */
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

/** A standby has the identity of its primary: of the cluster, and of the database in it. */
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

async function reaches(database: Database, after: Position, patienceMs: number): Promise<boolean> {
  const deadlineMs = performance.now() + patienceMs;
  for (;;) {
    const { position } = await readReplayed(database);
    if (position >= after) return true;
    if (performance.now() >= deadlineMs) return false;
    await delay(waitStepMs);
  }
}
