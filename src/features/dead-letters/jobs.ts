// Dead-letter jobs: change many dead letters. The database records the progress and the holder of a job, so any server
// and the command line can show, cancel and resume it; see sql/functions/dead-letters/jobs.sql.

import pg from 'pg';

import type { Database } from '../../database/connection.js';
import type { DeadLetterAction, DeadLetterFilter } from './database.js';

export type JobAction = DeadLetterAction | 'restore';

/** `job`: the job whose discards are undone. */
export type JobFilter = DeadLetterFilter & { job?: string };

export type Job = {
  id: string;
  action: JobAction;
  filter: Omit<JobFilter, 'before'>;
  /** Letters that died later are not changed. */
  deadBefore: Date;
  actor: string;
  /** The number that was counted at the start, and at least `done`: counting stops at a limit. */
  planned: number;
  done: number;
  /** Interrupted: its holder has stopped sending heartbeats, and any process may resume it. */
  state: 'running' | 'interrupted' | 'done' | 'cancelled' | 'failed';
  /** Whether it has ended, and letters that it discarded can be restored. */
  canUndo: boolean;
  error: string | null;
  startedAt: Date;
  endedAt: Date | null;
};

export type NewJob = {
  action: JobAction;
  /** Without `before`: letters that died before now. */
  filter: JobFilter;
  actor: string;
  /** The tenant that the starting token is limited to. */
  limitedTo?: string | null;
};

/** A job that this process holds. */
export type HeldJob = { id: string; token: string };

/** A job whose holder has sent no heartbeat for this long is interrupted. */
export const heldMs = 30_000;

/** Counts the letters, and holds the job for the caller. */
export async function startJob(
  database: Database,
  { action, filter, actor, limitedTo = null }: NewJob,
  holder: string,
): Promise<HeldJob> {
  const { destination, ids, errorCode, topic, tenantId, before } = filter;
  const narrowing = [destination, ids, errorCode, topic, tenantId].map((value) => value ?? null);
  const { causes, destinations, job: undone } = filter;
  const more = [causes, destinations, undone].map((value) => value ?? null);
  const [job] = await database.query<HeldJob>(
    'start job',
    `SELECT job_id AS id, token::text FROM ${database.schema}.start_job($1, $2, $3, $4, destination => $5, ids => $6,
       error_code => $7, topic => $8, tenant_id => $9, limited_to => $10, actor => $11, causes => $12,
       destinations => $13, undone_job => $14)`,
    [action, before ?? null, holder, heldMs, ...narrowing, limitedTo, actor, ...more],
  );
  if (job === undefined) throw new Error('start_job answered nothing');
  return job;
}

/** The job that `startJob` should undo is being undone already. */
export function isBeingUndone(error: unknown): error is pg.DatabaseError {
  return error instanceof pg.DatabaseError && error.code === '55006';
}

/** Processes and counts one batch. False if it was the last one, or if another process holds the job. */
export async function stepJob(database: Database, { id, token }: HeldJob): Promise<boolean> {
  const [row] = await database.query<{ goesOn: boolean }>(
    'job',
    `SELECT goes_on AS "goesOn" FROM ${database.schema}.job_step($1, $2)`,
    [id, token],
  );
  return row?.goesOn ?? false;
}

/** Sends a heartbeat. False: another process holds the job. */
export async function renewJob(database: Database, { id, token }: HeldJob): Promise<boolean> {
  return isTrue(database, 'renew_job($1, $2)', [id, token]);
}

/** Another process can resume the job at once. */
export async function releaseJob(database: Database, { id, token }: HeldJob): Promise<boolean> {
  return isTrue(database, 'release_job($1, $2)', [id, token]);
}

export async function failJob(
  database: Database,
  { id, token }: HeldJob,
  error: string,
): Promise<void> {
  await isTrue(database, 'fail_job($1, $2, $3)', [id, token, error]);
}

/** Of several concurrent calls, one gets the job. Null if another process holds it, or it has ended. */
export async function resumeJob(
  database: Database,
  id: string,
  holder: string,
  actor: string,
): Promise<HeldJob | null> {
  const [row] = await database.query<{ token: string | null }>(
    'resume job',
    `SELECT ${database.schema}.resume_job($1, $2, $3, $4)::text AS token`,
    [id, holder, heldMs, actor],
  );
  return row === undefined || row.token === null ? null : { id, token: row.token };
}

/** Changes that were made already stay. False if the job had ended before. */
export async function cancelJob(database: Database, id: string, actor: string): Promise<boolean> {
  return isTrue(database, 'cancel_job($1, $2)', [id, actor]);
}

/** One job, or the last 100, newest first. With `limitedTo`, only jobs that were started under this tenant limit. */
export async function listJobs(
  database: Database,
  { id = null, limitedTo = null }: { id?: string | null; limitedTo?: string | null } = {},
): Promise<Job[]> {
  return database.query<Job>(
    'list jobs',
    `SELECT j.id, j.action, j.filter, j.dead_before AS "deadBefore", j.actor, greatest(j.planned, j.done)::float8 AS planned, j.done::float8 AS done,
            CASE WHEN j.state = 'running' AND NOT ${database.schema}.is_taken('job ' || j.id) THEN 'interrupted' ELSE j.state END AS state,
            j.action = 'discard' AND j.state <> 'running' AND EXISTS (SELECT FROM ${database.schema}.discarded_letters d WHERE d.job_id = j.id)
              AND NOT EXISTS (SELECT FROM ${database.schema}.jobs u WHERE u.action = 'restore' AND u.state = 'running' AND u.filter ->> 'job' = j.id::text) AS "canUndo",
            j.error, j.started_at AS "startedAt", j.ended_at AS "endedAt"
       FROM ${database.schema}.jobs j
      WHERE ($1::uuid IS NULL OR j.id = $1) AND ($2::text IS NULL OR j.tenant_id = $2)
      ORDER BY j.started_at DESC LIMIT 100`,
    [id, limitedTo],
  );
}

/** What became of the letters that a job retried. */
export type JobResults = {
  /** The first 1,000 of them at most; the other numbers are about these, except those that were discarded. */
  followed: number;
  delivered: number;
  /** Dead again. */
  dead: number;
  /** Failed, and will be tried again. */
  retrying: number;
  /** Not tried yet, or processing. */
  unfinished: number;
};

/** A few look-ups by primary key for each letter: their cost does not grow with the log. */
export async function readJobResults(database: Database, id: string): Promise<JobResults> {
  const { schema } = database;
  // scalar subqueries, because the planner could read whole tables for EXISTS
  const [row] = await database.query<JobResults>(
    'read job results',
    `SELECT count(*)::int AS followed, count(*) FILTER (WHERE x.place = 'delivered')::int AS delivered,
            count(*) FILTER (WHERE x.place = 'dead')::int AS dead, count(*) FILTER (WHERE x.place = 'retrying')::int AS retrying,
            count(*) FILTER (WHERE x.place = 'unfinished')::int AS unfinished
       FROM (SELECT coalesce(
                 (SELECT 'dead' FROM ${schema}.dead_letters d
                   WHERE d.message_id = l.message_id AND d.destination_id = l.destination_id LIMIT 1),
                 (SELECT CASE WHEN d.tries > 0 THEN 'retrying' ELSE 'unfinished' END FROM ${schema}.deliveries d
                   WHERE d.message_id = l.message_id AND d.destination_id = l.destination_id LIMIT 1),
                 (SELECT CASE a.state WHEN 'dispatched' THEN 'delivered' WHEN 'discarded' THEN 'discarded' ELSE 'unfinished' END
                    FROM ${schema}.attempts a
                   WHERE a.message_id = l.message_id AND a.destination_id = l.destination_id
                   ORDER BY a.claim_no DESC LIMIT 1)) AS place
               FROM ${schema}.jobs j CROSS JOIN LATERAL unnest(j.retried_ids, j.retried_to) l(message_id, destination_id)
              WHERE j.id = $1) x`,
    [id],
  );
  return row ?? { followed: 0, delivered: 0, dead: 0, retrying: 0, unfinished: 0 };
}

/** Calls a function that returns a boolean, such as `renew_job($1, $2)`. */
async function isTrue(database: Database, call: string, values: unknown[]): Promise<boolean> {
  const [row] = await database.query<{ answer: boolean }>(
    call.slice(0, call.indexOf('(')).replaceAll('_', ' '),
    `SELECT ${database.schema}.${call} AS answer`,
    values,
  );
  return row?.answer ?? false;
}
