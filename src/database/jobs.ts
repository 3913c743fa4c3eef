// Jobs: what an operator does with many dead letters at once. The database keeps how far each has come and who runs it,
// so that any server shows, cancels and goes on with any job: see sql/functions/jobs.sql.

import type { Database } from './connection.js';
import type { DeadLetterAction, DeadLetterFilter } from './dead-letters.js';

export type Job = {
  id: string;
  action: DeadLetterAction;
  filter: Omit<DeadLetterFilter, 'before'>;
  /** What died later is left alone. */
  deadBefore: Date;
  actor: string;
  /** What was counted when it began, and never less than what is done: counting stops somewhere. */
  planned: number;
  done: number;
  /** Interrupted: whoever ran it gives no sign of life, and anybody may go on with it. */
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
  /** The tenant to which whoever begins it is limited. */
  limitedTo: string | null;
};

/** Without a sign of life for so long, the holder of a job counts as gone. */
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

/** One batch, and the count of it; false if that was the last, or somebody else holds it. */
export async function stepJob(database: Database, id: string, holder: string): Promise<boolean> {
  const [row] = await database.query<{ goesOn: boolean }>(
    'job',
    `SELECT goes_on AS "goesOn" FROM ${database.schema}.job_step($1, $2, $3)`,
    [id, holder, heldMs],
  );
  return row?.goesOn ?? false;
}

/** A sign of life; 0 gives it up. */
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

/** True for one of all that try at once; false also if somebody runs it, or it has ended. */
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

/** What is done stays done. */
export async function cancelJob(database: Database, id: string, actor: string): Promise<void> {
  await database.query('cancel job', `SELECT ${database.schema}.cancel_job($1, $2)`, [id, actor]);
}

/** The newest first; one, or the last 100. With a tenant, those that somebody began who is limited to it. */
export async function listJobs(
  database: Database,
  { id = null, limitedTo = null }: { id?: string | null; limitedTo?: string | null } = {},
): Promise<Job[]> {
  return database.query<Job>(
    'list jobs',
    `SELECT j.id, j.action, j.filter, j.dead_before AS "deadBefore", j.actor, greatest(j.planned, j.done)::float8 AS planned, j.done::float8 AS done,
            CASE WHEN j.state = 'running' AND j.held_until <= clock_timestamp() THEN 'interrupted' ELSE j.state END AS state,
            j.error, j.started_at AS "startedAt", j.ended_at AS "endedAt"
       FROM ${database.schema}.jobs j
      WHERE ($1::uuid IS NULL OR j.id = $1) AND ($2::text IS NULL OR j.tenant_id = $2)
      ORDER BY j.started_at DESC LIMIT 100`,
    [id, limitedTo],
  );
}
