// Replays in the database. The database records the progress of a replay, so the process that runs it may die at any
// time; see sql/functions/replays/replay.sql.

import type { Database } from '../../database/connection.js';

export type ReplayFilter = {
  destination: string;
  ids?: readonly string[];
  /** Exact, `user.*` or `*`. */
  topic?: string;
  namespace?: string;
  tenantId?: string;
  key?: string;
  /** Created at or after this time. */
  since?: Date;
  /** Created before this time. */
  until?: Date;
};

export type ReplayPlan = {
  messages: number;
  /** False: estimated from the first 100,000. */
  isExact: boolean;
  sample: {
    messageId: string;
    topic: string;
    tenantId: string | null;
    key: string | null;
    sequence: string | null;
    createdAt: string;
    /** The state of the message at the destination; `new` if it has never been sent there. */
    status: string;
  }[];
  /** Set if the filter includes older messages, which retention has removed. */
  keptSince: Date | null;
  /** The number of given ids whose messages retention has removed. */
  expired: number;
  /** The id of an unfinished replay with the same filter. */
  unfinished: string | null;
};

export type ReplayStep = {
  replayed: number;
  waiting: number;
  processing: number;
  waitMs: number;
  state: ReplayReport['state'];
};

export type ReplayReport = {
  id: string;
  destination: string;
  filter: Record<string, unknown>;
  state: 'unfinished' | 'done' | 'cancelled';
  perSecond: number;
  replayed: number;
  /** Skipped because the message was pending there already. */
  waiting: number;
  /** Skipped because a relay held it. */
  processing: number;
  /** The times of the first and the last message in its range, and the position that it has reached. */
  beginsAt: Date;
  reachedAt: Date;
  endsAt: Date;
  actor: string;
  startedAt: Date;
  movedAt: Date;
  /** Whether a process is running it now. */
  running: boolean;
  endedAt: Date | null;
};

/** A replay without a step for this long is not running: even at the slowest rate, steps follow within a second. */
const stillSeconds = 10;

const filterCall =
  'destination => $1, ids => $2, topic => $3, namespace => $4, tenant_id => $5, key => $6, since => $7, until => $8';

function filterValues(filter: ReplayFilter): unknown[] {
  const { destination, ids, topic, namespace, tenantId, key, since, until } = filter;
  return [destination, ids, topic, namespace, tenantId, key, since, until].map(
    (value) => value ?? null,
  );
}

/** Counts without changing anything. */
export async function planReplay(database: Database, filter: ReplayFilter): Promise<ReplayPlan> {
  const [plan] = await database.query<ReplayPlan>(
    'plan replay',
    `SELECT messages::float8 AS messages, is_exact AS "isExact", sample, kept_since AS "keptSince", expired, unfinished::text AS unfinished
       FROM ${database.schema}.plan_replay(${filterCall})`,
    filterValues(filter),
  );
  if (plan === undefined) throw new Error('plan_replay answered nothing');
  return plan;
}

/** Starts a replay, or continues the unfinished one with the same filter. */
export async function startReplay(
  database: Database,
  filter: ReplayFilter,
  perSecond: number,
  actor: string,
): Promise<{ id: string; resumed: boolean }> {
  const [started] = await database.query<{ id: string; resumed: boolean }>(
    'start replay',
    `SELECT replay_id::text AS id, resumed FROM ${database.schema}.start_replay(${filterCall}, per_second => $9, actor => $10)`,
    [...filterValues(filter), perSecond, actor],
  );
  if (started === undefined) throw new Error('start_replay answered nothing');
  return started;
}

export async function resumeReplay(
  database: Database,
  id: string,
  perSecond: number | null,
  actor: string,
): Promise<void> {
  await database.query('resume replay', `SELECT ${database.schema}.resume_replay($1, $2, $3)`, [
    id,
    perSecond,
    actor,
  ]);
}

/** False if it had ended before. */
export async function cancelReplay(
  database: Database,
  id: string,
  actor: string,
): Promise<boolean> {
  const [row] = await database.query<{ cancelled: boolean }>(
    'cancel replay',
    `SELECT ${database.schema}.cancel_replay($1, $2) AS cancelled`,
    [id, actor],
  );
  return row?.cancelled ?? false;
}

export async function stepReplay(database: Database, id: string): Promise<ReplayStep> {
  const [step] = await database.query<ReplayStep>(
    'replay',
    `SELECT replayed, waiting, processing, wait_ms AS "waitMs", state FROM ${database.schema}.replay_step($1)`,
    [id],
  );
  if (step === undefined) throw new Error('replay_step answered nothing');
  return step;
}

/** One replay, or the last 100, newest first. */
export async function listReplays(database: Database, id?: string): Promise<ReplayReport[]> {
  return database.query<ReplayReport>(
    'list replays',
    `SELECT r.id::text AS id, d.name AS destination, r.filter, r.state, r.per_second AS "perSecond", r.replayed::float8 AS replayed,
            r.waiting::float8 AS waiting, r.processing::float8 AS processing, b.at AS "beginsAt",
            greatest(${database.schema}.id_time(r.position), b.at) AS "reachedAt", ${database.schema}.id_time(r.end_id) AS "endsAt",
            r.actor, r.started_at AS "startedAt", r.moved_at AS "movedAt", r.ended_at AS "endedAt",
            r.state = 'unfinished' AND r.moved_at > clock_timestamp() - make_interval(secs => $2) AS running
       FROM ${database.schema}.replays r JOIN ${database.schema}.destinations d ON d.id = r.destination_id
       LEFT JOIN (SELECT ${database.schema}.id_time(m.id) AS at FROM ${database.schema}.messages m ORDER BY m.id LIMIT 1) o ON true
      CROSS JOIN LATERAL (SELECT coalesce(greatest((r.filter ->> 'since')::timestamptz, o.at), r.started_at) AS at) b
      WHERE $1::bigint IS NULL OR r.id = $1 ORDER BY r.id DESC LIMIT 100`,
    [id ?? null, stillSeconds],
  );
}
