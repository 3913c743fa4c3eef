// Set-up for audit tests: creates attempts, seals them without waiting for the clock, and tampers with rows as a
// superuser could.

import { verifySeals } from '../../src/features/audit/verify.js';
import type { Verification, VerifyOptions } from '../../src/features/audit/verify.js';
import { only } from './only.js';
import type { Queue } from './outbox.js';
import type { TestDatabase } from './postgres.js';
import { openDatabase } from './relay.js';
import { settleDelivered } from './settling.js';

/** Delivers messages and returns their ids in order. */
export async function deliver(queue: Queue, count: number): Promise<string[]> {
  await queue.enqueue(count);
  const claim = await queue.claim({ limit: count });
  await settleDelivered(queue.db, claim);
  return claim.ids.toSorted();
}

export async function sealActions(db: TestDatabase): Promise<number | null> {
  const { rows } = await db.query<{ count: number | null }>(
    `SELECT ${db.quoted}.seal_actions(10000, '0')::int AS count`,
  );
  return only(rows).count;
}

/** Seals every attempt and every action that is not sealed yet. */
export async function sealNow(db: TestDatabase, rangeRows = 10_000): Promise<void> {
  await sealActions(db);
  for (let step = 0; step < 1000; step += 1) {
    const { rows } = await db.query<{ open: boolean }>(
      `SELECT EXISTS (SELECT FROM ${db.quoted}.attempts a WHERE NOT EXISTS (
         SELECT FROM ${db.quoted}.seals s WHERE s.kind = 'attempts' AND a.message_id >= s.from_id AND a.message_id < s.to_id)) AS open`,
    );
    if (!only(rows).open) return;
    await db.query(`SELECT ${db.quoted}.seal_attempts($1, '0', '0')`, [rangeRows]);
  }
  throw new Error('attempts stay without a seal');
}

/** Searches all days for rows that arrived late, as if an hour had passed. Returns how many it sealed. */
export async function searchNow(db: TestDatabase): Promise<number> {
  await db.query(`UPDATE ${db.quoted}.seal_days SET searched_at = '-infinity', quiet = false`);
  for (let sealed = 0; ;) {
    const { rows } = await db.query<{ count: number | null }>(
      `SELECT ${db.quoted}.seal_attempts(10000, '0', '1 hour')::int AS count`,
    );
    const { count } = only(rows);
    if (count === null) return sealed;
    sealed += count;
  }
}

/** Verifies with the rights of an auditor only. */
export async function verify(db: TestDatabase, options?: VerifyOptions): Promise<Verification> {
  return verifySeals(openDatabase(db, 'test_auditor'), options);
}

/** Runs statements as a superuser, with the triggers switched off meanwhile. */
export async function tamper(db: TestDatabase, ...statements: string[]): Promise<void> {
  const guards = (state: string) =>
    ['attempts', 'operator_actions', 'seals']
      .map((table) => `ALTER TABLE ${db.quoted}.${table} ${state} TRIGGER append_only`)
      .join('; ');
  await db.inTransaction(async (client) => {
    await client.query(guards('DISABLE'));
    for (const statement of statements) await client.query(statement);
    await client.query(guards('ENABLE ALWAYS'));
  });
}

export type SealRow = {
  number: number;
  kind: string;
  from_id: string | null;
  row_count: number;
  since: string;
};

export async function readSealRows(db: TestDatabase): Promise<SealRow[]> {
  const { rows } = await db.query<SealRow>(
    `SELECT number::int, kind, from_id, row_count::int, since::text FROM ${db.quoted}.seals ORDER BY number`,
  );
  return rows;
}
