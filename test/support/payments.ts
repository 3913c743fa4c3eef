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

/** The logins of the example belong to the cluster, which other test files share: only one file creates them at a time. */
export async function alone<T>(work: () => Promise<T>): Promise<T> {
  const lock = new pg.Client({ connectionString: inject('serverUrl') });
  await lock.connect();
  try {
    await lock.query(`SELECT pg_advisory_lock(hashtext('examples/payments'))`);
    return await work();
  } finally {
    await lock.end();
  }
}

/** The roles of the template belong to Waybill's own tests, so the example is installed as on a new database. */
export async function install(db: TestDatabase): Promise<void> {
  await alone(() => installAlone(db));
}

async function installAlone(db: TestDatabase): Promise<void> {
  await db.query('DROP SCHEMA IF EXISTS outbox CASCADE');
  await migrateUp({ url: db.url });
  for (const file of ['schema.sql', 'names.sql'])
    await db.query(readFileSync(path.join(folder, file), 'utf8'));
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
    'SELECT * FROM enqueue_payment_outbox($1, $2, $3, $4, $5)',
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
  attempt_id: string;
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
      'SELECT * FROM payment_outbox_attempts WHERE participant_id = $1 ORDER BY sequence_id, attempt_no',
      [participant],
    );
    return rows;
  });
}

export async function pendingOf(db: TestDatabase, participant: string): Promise<PendingRow[]> {
  return as(db, 'symphony_readonly', async (client) => {
    const { rows } = await client.query<PendingRow>(
      'SELECT * FROM payment_outbox_pending WHERE participant_id = $1 ORDER BY sequence_id',
      [participant],
    );
    return rows;
  });
}

/**
 * A payment that was paid this many days ago, with everything that Waybill and the ledger keep of it. Its ledger row is
 * that of a payment of the instruction `INSTRUCTION` with the key `k1`.
 */
export async function paidLongAgo(
  db: TestDatabase,
  instruction: string,
  participant: string,
  daysAgo: number,
): Promise<string> {
  await db.query(
    `SELECT outbox.make_partitions(-$1::int, (now() AT TIME ZONE 'UTC')::date - $1::int)`,
    [daysAgo],
  );
  const { rows } = await db.query<{ id: string }>(
    `WITH paid AS (
       SELECT overlay(outbox.new_id()::text PLACING left(outbox.id_at(t.at)::text, 13) FROM 1)::uuid AS id, t.at
         FROM (SELECT now() - $3::int * interval '1 day' AS at) t),
     numbered AS (
       INSERT INTO outbox.keys (next_sequence, namespace, tenant_id, key, last_used_at)
       SELECT 2, 'payments', '', $2, at FROM paid RETURNING id),
     remembered AS (
       INSERT INTO outbox.dedupe_keys (message_id, namespace, topic, dedupe_key, sequence)
       SELECT id, 'payments', 'payment.card', $1 || '/k1', 1 FROM paid),
     attempted AS (
       INSERT INTO outbox.attempts (message_id, claimed_at, ended_at, claim_no, tries, state, destination_id, reference)
       SELECT p.id, p.at, p.at, 1, 1, 'dispatched', t.id, 'ref-1'
         FROM paid p, outbox.destinations t WHERE t.name = 'rail.card'),
     sent AS (
       INSERT INTO outbox.messages (id, created_at, transaction_id, key_id, sequence, bytes, namespace, topic, key,
                                    dedupe_key, aggregate_type, aggregate_id, payload)
       SELECT p.id, p.at, pg_current_xact_id(), n.id, 1, 2, 'payments', 'payment.card', $2, $1 || '/k1', 'instruction',
              $1, '{}' FROM paid p, numbered n)
     INSERT INTO payments.payment_ledger (outbox_id, message_id, instruction_id, participant_id, sequence_id,
                                          idempotency_key, rail_type, payload, created_at)
     SELECT id, id, $1, $2, 1, 'k1', 'card', '{"amount": "9.99"}', at FROM paid RETURNING outbox_id AS id`,
    [instruction, participant, daysAgo],
  );
  return only(rows).id;
}
