// Jobs over dead letters: started in the database by a runner that may be gone, and observed over HTTP.

import { randomUUID } from 'node:crypto';

import { only } from './only.js';
import type { TestDatabase } from './postgres.js';
import { serveDatabase } from './server.js';
import type { Ask } from './server.js';
import { waitFor } from './wait.js';

export type JobFields = {
  action?: 'retry' | 'skip' | 'discard';
  planned?: number;
  holder?: string;
  heldMs?: number;
  tenantId?: string;
  limitedTo?: string;
};

/** Starts a job for everything that is dead at the destination now, without a runner. */
export async function startJob(
  db: TestDatabase,
  destination: string,
  {
    action = 'discard',
    planned = 0,
    holder = randomUUID(),
    heldMs = 60_000,
    tenantId,
    limitedTo,
  }: JobFields = {},
): Promise<string> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT ${db.quoted}.start_job($1, clock_timestamp() + interval '1 ms', $2, $3, $4, destination => $5,
       tenant_id => $6, limited_to => $7, actor => 'test') AS id`,
    [action, planned, holder, heldMs, destination, tenantId ?? null, limitedTo ?? null],
  );
  return only(rows).id;
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
  await db.query(`UPDATE ${db.quoted}.jobs SET held_until = clock_timestamp() WHERE id = $1`, [id]);
}
