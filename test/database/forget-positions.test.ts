// Positions of the inbox are forgotten with their keys, and no others: not a position in use, one whose key this
// database still counts, or one that is locked. A key that comes back starts at 1, which is not a gap.

import { randomUUID } from 'node:crypto';

import { beforeEach, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { pruneNow } from '../support/retention.js';

const db = testDatabase();

beforeEach(() => db.query(`DELETE FROM ${db.quoted}.inbox_positions`));

type Step = { sequence: number; previous: number; id?: string; tenantId?: string };

/** What the inbox reports about the order. */
async function receive(key: string, { sequence, previous, id, tenantId }: Step) {
  const { rows } = await db.query<{ gap: string | null }>(
    `SELECT gap FROM ${db.quoted}.inbox_begin('ledger', dedupe_key => $1, tenant_id => $2, key => $3, sequence => $4, previous_sequence => $5)`,
    [id ?? randomUUID(), tenantId ?? null, key, sequence, previous],
  );
  return only(rows).gap;
}

const age = (key: string, days = 61) =>
  db.query(
    `UPDATE ${db.quoted}.inbox_positions SET used_at = now() - $2::int * interval '1 day' WHERE key = $1`,
    [key, days],
  );

async function keys(): Promise<string[]> {
  const { rows } = await db.query<{ key: string }>(
    `SELECT key FROM ${db.quoted}.inbox_positions ORDER BY key COLLATE "C"`,
  );
  return rows.map(({ key }) => key);
}

async function forget(batch = 1000, after: string[] | null = null) {
  const { rows } = await db.query<{ looked_at: number; forgotten: number; last: string[] }>(
    `SELECT * FROM ${db.quoted}.forget_positions('60 days', $1, $2)`,
    [batch, after],
  );
  return only(rows);
}

it('N7 M11 positions of unused keys are removed after keysDays, and those in use stay and are checked', async () => {
  for (const key of ['old', 'recent', 'continued']) {
    expect(await receive(key, { sequence: 1, previous: 0 })).toBeNull();
    await age(key, key === 'recent' ? 59 : 61);
  }
  expect(await receive('continued', { sequence: 2, previous: 1 })).toBeNull();
  expect(Object.keys(await pruneNow(db, {})), 'the default: for ever').not.toContain(
    'inbox positions',
  );
  expect(await keys()).toEqual(['continued', 'old', 'recent']);
  const report = await pruneNow(db, { keysDays: 60 }, 'test_maintenance');
  expect(report['inbox positions']).toMatchObject({ rows: 1 });
  expect(await keys()).toEqual(['continued', 'recent']);
  expect(await receive('recent', { sequence: 3, previous: 2 })).toBe('missing');
  expect(await receive('continued', { sequence: 1, previous: 0 })).toBe('step_back');
  // forgotten there too, it begins again
  expect(await receive('old', { sequence: 1, previous: 0 })).toBeNull();
  expect(await receive('old', { sequence: 3, previous: 2 })).toBe('missing');
});

it('N7 M11 a position stays for as long as this database counts its key', async () => {
  const queue = await makeQueue(db);
  await enqueueMany(db, db.pool, [
    { topic: queue.topic, key: 'counted' },
    { topic: queue.topic, key: 'of a tenant', tenantId: 'acme' },
  ]);
  await receive('counted', { sequence: 1, previous: 0 });
  await receive('of a tenant', { sequence: 1, previous: 0, tenantId: 'acme' });
  // the same key, with another key id
  await receive('of a tenant', { sequence: 1, previous: 0, tenantId: 'globex' });
  for (const key of ['counted', 'of a tenant']) await age(key);
  expect(await forget()).toMatchObject({ looked_at: 3, forgotten: 1 });
  expect(await receive('of a tenant', { sequence: 2, previous: 1, tenantId: 'acme' })).toBeNull();
  expect(await receive('counted', { sequence: 2, previous: 1 })).toBeNull();
});

it('N7 M11 a position that a consumer holds is skipped without waiting', async () => {
  await receive('held', { sequence: 1, previous: 0 });
  await age('held');
  const client = await db.connect();
  await client.query('BEGIN');
  await client.query(
    `SELECT ${db.quoted}.inbox_begin('ledger', dedupe_key => $1, key => 'held', sequence => 2)`,
    [randomUUID()],
  );
  expect(await forget()).toMatchObject({ looked_at: 1, forgotten: 0 });
  await client.query('COMMIT');
  expect(await forget()).toMatchObject({ looked_at: 1, forgotten: 0 });
  expect(await keys()).toEqual(['held']);
});

it('N7 M11 positions are checked in slices, each one once', async () => {
  const all = ['a', 'b', 'c', 'd', 'e'];
  for (const key of all) {
    await receive(key, { sequence: 1, previous: 0 });
    if (key !== 'b') await age(key);
  }
  const first = await forget(2);
  expect(first).toEqual({ looked_at: 2, forgotten: 1, last: ['ledger', 'default', '', 'b'] });
  const second = await forget(2, first.last);
  expect(second).toMatchObject({ looked_at: 2, forgotten: 2 });
  expect(await forget(2, second.last)).toMatchObject({ looked_at: 1, forgotten: 1 });
  expect(await keys()).toEqual(['b']);
});

it('N7 nothing is forgotten before 30 days, and nothing without a retention', async () => {
  await expect(db.query(`SELECT ${db.quoted}.forget_positions('29 days')`)).rejects.toMatchObject({
    code: '22023',
  });
  await receive('kept', { sequence: 1, previous: 0 });
  await age('kept', 10_000);
  await db.query(`SELECT ${db.quoted}.forget_positions(NULL)`);
  expect(await keys()).toEqual(['kept']);
});
