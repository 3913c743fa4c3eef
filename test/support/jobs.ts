// Jobs over dead letters: started in the database by a runner that may be gone, and observed over HTTP.

import { randomUUID } from 'node:crypto';

import type { HeldJob } from '../../src/features/dead-letters/jobs.js';
import { expireHold } from './holds.js';
import { only } from './only.js';
import type { TestDatabase } from './postgres.js';
import { serveDatabase } from './server.js';
import type { Ask } from './server.js';
import { waitFor } from './wait.js';

export type JobFields = {
  action?: 'retry' | 'skip' | 'discard';
  heldMs?: number;
  tenantId?: string;
  limitedTo?: string;
};

/** Starts a job for everything that is dead at the destination now, without a runner. */
export async function startHeldJob(
  db: TestDatabase,
  destination: string,
  { action = 'discard', heldMs = 60_000, tenantId, limitedTo }: JobFields = {},
): Promise<HeldJob> {
  const { rows } = await db.query<HeldJob>(
    `SELECT job_id AS id, token::text FROM ${db.quoted}.start_job($1, NULL, $2, $3, destination => $4,
       tenant_id => $5, limited_to => $6, actor => 'test')`,
    [action, randomUUID(), heldMs, destination, tenantId ?? null, limitedTo ?? null],
  );
  return only(rows);
}

/** The same; returns its id. */
export async function startJob(
  db: TestDatabase,
  destination: string,
  fields: JobFields = {},
): Promise<string> {
  return (await startHeldJob(db, destination, fields)).id;
}

export async function jobOf(ask: Ask, id: unknown): Promise<Record<string, unknown>> {
  return (await ask('GET', `/api/dead-letters/jobs/${String(id)}`)).body;
}

export async function stateOf(ask: Ask, id: unknown): Promise<unknown> {
  return (await jobOf(ask, id))['state'];
}

/** Asks a separate server, with an operator's token. */
export async function jobOperator(db: TestDatabase): Promise<Ask> {
  return (await serveDatabase(db)).as('operate');
}

export async function untilJob(
  ask: Ask,
  id: unknown,
  state: string,
): Promise<Record<string, unknown>> {
  await waitFor(async () => (await stateOf(ask, id)) === state, { what: `the job to be ${state}` });
  return jobOf(ask, id);
}

/** Makes the job look as if its runner had sent no heartbeat for too long. */
export async function lapse(db: TestDatabase, id: unknown): Promise<void> {
  await expireHold(db, `job ${String(id)}`);
}
