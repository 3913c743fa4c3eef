// The payments processor of examples/payments on a test's database: its schema, logins and calls.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import pg from 'pg';
import { inject } from 'vitest';

import { createRelay } from '../../src/config.js';
import type { Config } from '../../src/config.js';
import { migrateUp } from '../../src/database/migrate.js';
import type { RetryPolicy } from '../../src/core/retry-policy.js';
import { as, urlAs } from './logins.js';
import { only } from './only.js';
import type { TestDatabase } from './postgres.js';
import { startRelay } from './relay.js';
import type { TestRelay } from './relay.js';

export const folder = path.resolve('examples/payments');

export type SentPayment = {
  amount: string;
  instructionId: string;
  idempotencyKey: string;
  participantId: string;
  sequenceId: string;
};
export type Answer = { reference?: string; code?: string; message?: string };
export type Send = (rail: string, payment: SentPayment) => Answer | Promise<Answer>;

type Executor = (send: Send, options: { databaseUrl: string; retry?: RetryPolicy }) => Config;
const { executor } = (await import(pathToFileURL(path.join(folder, 'rails.mjs')).href)) as {
  executor: Executor;
};

/** The relay that executors run; retries are due at once. */
export function executorOf(db: TestDatabase, send: Send): Config {
  return executor(send, {
    databaseUrl: urlAs(db.url, 'symphony_executor'),
    retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 },
  });
}

/** Examples use the default schema, whatever the schema of the project is. */
export function inDefault(db: TestDatabase): TestDatabase {
  const name = { value: 'outbox' };
  return Object.create(db, { schema: name, quoted: name }) as TestDatabase;
}

/**
 * The roles of the template belong to Waybill's own tests, so the example is installed as on a new database. Its logins
 * belong to the cluster, which other test files share, so only one file creates them at a time.
 */
export async function install(db: TestDatabase): Promise<void> {
  const lock = new pg.Client({ connectionString: inject('serverUrl') });
  await lock.connect();
  try {
    await lock.query(`SELECT pg_advisory_lock(hashtext('examples/payments'))`);
    await installAlone(db);
  } finally {
    await lock.end();
  }
}

async function installAlone(db: TestDatabase): Promise<void> {
  await db.query('DROP SCHEMA IF EXISTS outbox CASCADE');
  await migrateUp({ url: db.url });
  await db.query(readFileSync(path.join(folder, 'schema.sql'), 'utf8'));
  // the first executor that starts creates the routes
  const relay = createRelay(executorOf(db, () => ({})));
  await relay.start();
  await relay.stop();
}

export async function startExecutor(
  db: TestDatabase,
  send: Send,
  settings: Config['relay'] = {},
): Promise<TestRelay> {
  const { destinations, routes, relay, database } = executorOf(db, send);
  return startRelay(db, {
    destinations,
    ...(routes && { routes }),
    ...(database && { database }),
    relay: { ...relay, ...settings },
  });
}

export type Payment = {
  instruction?: string;
  participant: string;
  key?: string | null;
  rail?: string;
  payload?: unknown;
};
export type PendingRow = {
  outbox_id: string;
  instruction_id: string;
  participant_id: string;
  sequence_id: string;
  attempt_count: number | null;
  rail_type: string;
  payload: { amount: string };
};

/** A payload that each rail accepts. */
export const payloads: Record<string, object> = {
  sepa: { amount: '12.50', currency: 'EUR', destination: 'DE89370400440532013000' },
  card: { amount: '12.50', currency: 'USD', destination: 'tok_4eC39HqLyjWDarjtT1' },
  mobile: { amount: '900', currency: 'UGX', destination: '+256772123456' },
};

/** Enqueues with the login of ingest, over this connection or a new one. */
export async function enqueue(
  db: TestDatabase,
  payment: Payment,
  on?: Pick<pg.Client, 'query'>,
): Promise<PendingRow> {
  if (on === undefined) return as(db, 'symphony_ingest', (client) => enqueue(db, payment, client));
  const { instruction = randomUUID(), participant, key = 'k1', rail = 'card' } = payment;
  const { rows } = await on.query<PendingRow>(
    'SELECT * FROM payments.enqueue_payment_outbox($1, $2, $3, $4, $5)',
    [instruction, participant, key, rail, JSON.stringify(payment.payload ?? payloads[rail])],
  );
  return only(rows);
}

export type ClaimedPayment = { message_id: string; sequence: string; key: string };

/** Claims as an executor in another language would. */
export async function claim(db: TestDatabase, rail: string, token: string, limit = 100) {
  return as(db, 'symphony_executor', async (client) => {
    const { rows } = await client.query<ClaimedPayment>('SELECT * FROM outbox.claim($1, $2, $3)', [
      `rail.${rail}`,
      token,
      limit,
    ]);
    return rows;
  });
}

/** Settles everything that can be claimed, so that no test meets the payments of another. */
export async function settleAll(db: TestDatabase): Promise<void> {
  const token = randomUUID();
  for (const rail of Object.keys(payloads)) {
    for (;;) {
      const ids = (await claim(db, rail, token)).map((row) => row.message_id);
      if (ids.length === 0) break;
      await db.query('SELECT outbox.mark_delivered($1, $2)', [token, ids]);
    }
  }
}

export type PaymentAttempt = {
  outbox_id: string;
  sequence_id: string;
  attempt_no: number;
  state: string;
  error_code: string | null;
  rail_code: string | null;
  rail_reference: string | null;
};

/** The attempts of a participant as the auditor sees them. */
export async function attemptsOf(db: TestDatabase, participant: string): Promise<PaymentAttempt[]> {
  return as(db, 'symphony_auditor', async (client) => {
    const { rows } = await client.query<PaymentAttempt>(
      'SELECT * FROM payments.payment_outbox_attempts WHERE participant_id = $1 ORDER BY sequence_id, attempt_no',
      [participant],
    );
    return rows;
  });
}

export async function pendingOf(db: TestDatabase, participant: string): Promise<PendingRow[]> {
  return as(db, 'symphony_readonly', async (client) => {
    const { rows } = await client.query<PendingRow>(
      'SELECT * FROM payments.payment_outbox_pending WHERE participant_id = $1 ORDER BY sequence_id',
      [participant],
    );
    return rows;
  });
}
