// Dead-letter jobs: change many dead letters in the background. The database records the progress and the holder of a
// job, so any server can show, cancel and resume it; see sql/functions/dead-letters/jobs.sql.

import type { Database } from '../../database/connection.js';
import type { DeadLetterAction, DeadLetterFilter } from './database.js';

export type Job = {
  id: string;
  action: DeadLetterAction;
  filter: Omit<DeadLetterFilter, 'before'>;
  /** Letters that died later are not changed. */
  deadBefore: Date;
  actor: string;
  /** The number that was counted at the start, and at least `done`: counting stops at a limit. */
  planned: number;
  done: number;
  /** Interrupted: its holder has stopped sending heartbeats, and any server may resume it. */
  state: 'running' | 'interrupted' | 'done' | 'cancelled' | 'failed';
  error: string | null;
  startedAt: Date;
  endedAt: Date | null;
};

export type NewJob = {
  action: DeadLetterAction;
  filter: DeadLetterFilter & { before: Date };
  planned: number;
  actor: string;
  /** The tenant that the starting token is limited to. */
  limitedTo: string | null;
};

/** A job whose holder has sent no heartbeat for this long is interrupted. */
export const heldMs = 30_000;

export async function startJob(
  database: Database,
  { action, filter, planned, actor, limitedTo }: NewJob,
  holder: string,
): Promise<string> {
  const { destination, ids, errorCode, topic, tenantId, before } = filter;
  const narrowing = [destination, ids, errorCode, topic, tenantId].map((value) => value ?? null);
  const [row] = await database.query<{ id: string }>(
    'start job',
    `SELECT ${database.schema}.start_job($1, $2, $3, $4, $5, destination => $6, ids => $7, error_code => $8, topic => $9,
       tenant_id => $10, limited_to => $11, actor => $12) AS id`,
    [action, before, planned, holder, heldMs, ...narrowing, limitedTo, actor],
  );
  if (row === undefined) throw new Error('start_job answered nothing');
  return row.id;
}

/** Processes and counts one batch. False if it was the last one, or if another process holds the job. */
export async function stepJob(database: Database, id: string, holder: string): Promise<boolean> {
  const [row] = await database.query<{ goesOn: boolean }>(
    'job',
    `SELECT goes_on AS "goesOn" FROM ${database.schema}.job_step($1, $2, $3)`,
    [id, holder, heldMs],
  );
  return row?.goesOn ?? false;
}

/** Sends a heartbeat; `forMs` 0 gives the job up. */
export async function holdJob(
  database: Database,
  id: string,
  holder: string,
  forMs = heldMs,
): Promise<void> {
  await database.query('hold job', `SELECT ${database.schema}.hold_job($1, $2, $3)`, [
    id,
    holder,
    forMs,
  ]);
}

export async function failJob(
  database: Database,
  id: string,
  holder: string,
  error: string,
): Promise<void> {
  await database.query('fail job', `SELECT ${database.schema}.fail_job($1, $2, $3)`, [
    id,
    holder,
    error,
  ]);
}

/** Of several concurrent calls, one returns true. False if the job has a holder or has ended. */
export async function resumeJob(
  database: Database,
  id: string,
  holder: string,
  actor: string,
): Promise<boolean> {
  const [row] = await database.query<{ resumed: boolean }>(
    'resume job',
    `SELECT ${database.schema}.resume_job($1, $2, $3, $4) AS resumed`,
    [id, holder, heldMs, actor],
  );
  return row?.resumed ?? false;
}

/** Changes that were made already stay. */
export async function cancelJob(database: Database, id: string, actor: string): Promise<void> {
  await database.query('cancel job', `SELECT ${database.schema}.cancel_job($1, $2)`, [id, actor]);
}

/** One job, or the last 100, newest first. With `limitedTo`, only jobs that were started under this tenant limit. */
export async function listJobs(
  database: Database,
  { id = null, limitedTo = null }: { id?: string | null; limitedTo?: string | null } = {},
): Promise<Job[]> {
  return database.query<Job>(
    'list jobs',
    `SELECT j.id, j.action, j.filter, j.dead_before AS "deadBefore", j.actor, greatest(j.planned, j.done)::float8 AS planned, j.done::float8 AS done,
            CASE WHEN j.state = 'running' AND NOT j.held_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '11 minutes' THEN 'interrupted' ELSE j.state END AS state,
            j.error, j.started_at AS "startedAt", j.ended_at AS "endedAt"
       FROM ${database.schema}.jobs j
      WHERE ($1::uuid IS NULL OR j.id = $1) AND ($2::text IS NULL OR j.tenant_id = $2)
      ORDER BY j.started_at DESC LIMIT 100`,
    [id, limitedTo],
  );
}
