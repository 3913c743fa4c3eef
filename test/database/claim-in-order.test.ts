// claim_in_order: claims in order of creation, then id, for workers whose contract is that of a plain outbox table.

import { randomUUID } from 'node:crypto';

import { beforeEach, expect, test } from 'vitest';

import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
let name = '';
beforeEach(async () => {
  name = `d${randomUUID().slice(0, 8)}`;
  await db.query(
    `SELECT ${db.quoted}.define_destination($1, p_max_attempts => 3, p_retry_base_ms => 3600000,
    p_retry_max_ms => 3600000)`,
    [name],
  );
  await db.query(`SELECT ${db.quoted}.define_route('*', $1, namespace => $1)`, [name]);
});

async function put(given: { key?: string; availableAt?: string } = {}): Promise<string> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT id FROM ${db.quoted}.enqueue('x', '{}', namespace => $1, key => $2, available_at => $3)`,
    [name, given.key ?? null, given.availableAt ?? null],
  );
  return only(rows).id;
}

/** Claims with the login of a worker. */
async function claim(limit = 10, call = 'claim_in_order', token = randomUUID()): Promise<string[]> {
  return as(db, 'test_relay', async (client) => {
    const { rows } = await client.query<{ message_id: string }>(
      `SELECT message_id FROM ${db.quoted}.${call}($1, $2, $3)`,
      [name, token, limit],
    );
    return rows.map(({ message_id }) => message_id);
  });
}

const expire = () =>
  db.query(`UPDATE ${db.quoted}.leases SET expires_at = clock_timestamp() - interval '1 ms'`);
const nack = (token: string, id: string, after = '0') =>
  db.query(`SELECT ${db.quoted}.nack($1, $2, 'failed', retry_after => $3::interval)`, [
    token,
    id,
    after,
  ]);

test('M8 M14 a due retry comes before messages that were created after it', async () => {
  const token = randomUUID();
  const [old, later] = [await put(), await put()];
  await claim(2, 'claim_in_order', token);
  await nack(token, old);
  await nack(token, later, '1 hour');
  const young = await put();
  expect(await claim(1)).toEqual([old]);
  // the other retry is not due
  expect(await claim()).toEqual([young]);
});

test('M6 M7 M14 messages of an expired lease are claimed at once, in their place, with the others', async () => {
  const ids = [await put(), await put()];
  await claim();
  await expire();
  ids.push(await put());
  expect(await claim(2)).toEqual(ids.slice(0, 2));
  await expire();
  expect(await claim()).toEqual(ids);
  await expire();
  // the first two have used up their three tries
  expect(await claim()).toEqual(ids.slice(2));
  const { rows } = await db.query<{ message_id: string }>(
    `SELECT message_id FROM ${db.quoted}.dead_letters d JOIN ${db.quoted}.destinations t ON t.id = d.destination_id
      WHERE t.name = $1 ORDER BY 1`,
    [name],
  );
  expect(rows.map(({ message_id }) => message_id)).toEqual(ids.slice(0, 2));
});

test('M14 C12 a time that the producer gave is the creation time, at the first try and at each later one', async () => {
  const second = await put({ availableAt: '2026-01-02T00:00:00Z' });
  const third = await put();
  const first = await put({ availableAt: '2026-01-01T00:00:00Z' });
  const token = randomUUID();
  expect(await claim(10, 'claim_in_order', token)).toEqual([first, second, third]);
  for (const id of [second, first, third]) await nack(token, id);
  expect(await claim(1)).toEqual([first]);
  expect(await claim()).toEqual([second, third]);
});

test('M14 messages with a key keep the order of their key, and have their place by creation in the answer', async () => {
  const ids = [await put(), await put({ key: 'k' }), await put(), await put({ key: 'k' })];
  const token = randomUUID();
  expect(await claim(10, 'claim_in_order', token)).toEqual(ids.slice(0, 3));
  expect(await claim()).toEqual([]);
  await db.query(`SELECT ${db.quoted}.ack($1, $2)`, [token, ids[1]]);
  expect(await claim()).toEqual(ids.slice(3));
});

test('M14 concurrent claims share the messages and wait for none', async () => {
  const token = randomUUID();
  const ids: string[] = [];
  for (let n = 0; n < 6; n += 1) ids.push(await put());
  await claim(10, 'claim_in_order', token);
  for (const id of ids) await nack(token, id);
  const open = await db.connect();
  await open.query('BEGIN');
  const { rows } = await open.query<{ message_id: string }>(
    `SELECT message_id FROM ${db.quoted}.claim_in_order($1, $2, 3)`,
    [name, randomUUID()],
  );
  const young = await put();
  expect(rows.map(({ message_id }) => message_id)).toEqual(ids.slice(0, 3));
  // the open claim has locked all six retries
  expect(await claim()).toEqual([young]);
  await open.query('COMMIT');
  expect(await claim()).toEqual(ids.slice(3));
});

test('arguments are checked, and claims work in READ COMMITTED only', async () => {
  await expect(claim(0)).rejects.toThrow('max_messages');
  const client = await db.connect();
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  await expect(
    client.query(`SELECT ${db.quoted}.claim_in_order($1, $2)`, [name, randomUUID()]),
  ).rejects.toThrow(/READ COMMITTED/i);
  await client.query('ROLLBACK');
});
