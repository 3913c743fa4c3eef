// 100,000 keys that are blocked or wait for a retry cost a claim nothing: it reads only what it claims. Measured by the
// server's counters of rows read, which include every plan.

import type pg from 'pg';
import { beforeAll, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { settleDelivered } from '../support/settling.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const lanes = 100_000;
const due = 50;

let client: pg.Client;
let queue: Queue;

beforeAll(async () => {
  client = await db.connect();
  await client.query('SET max_parallel_workers_per_gather = 0');
  queue = await makeQueue(db);
  await client.query(
    `INSERT INTO ${db.quoted}.lanes (destination_id, key_id, available_at, blocked_by, namespace)
     SELECT $1, 1000000 + n, now() + CASE WHEN n % 2 = 0 THEN interval '1 hour' ELSE interval '-1 hour' END,
            CASE WHEN n % 2 = 1 THEN gen_random_uuid() END, 'default' FROM generate_series(1, $2::int) n`,
    [queue.id, lanes],
  );
  await client.query(
    `INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, bytes, namespace, key_id, sequence, tries)
     SELECT gen_random_uuid(), destination_id, available_at, 10, 'default', key_id, 1, 1
       FROM ${db.quoted}.lanes WHERE destination_id = $1`,
    [queue.id],
  );
  await client.query('ANALYZE');
}, 120_000);

/** Rows of a table that the work reads, by any plan. */
async function rowsRead(table: string, work: () => Promise<unknown>): Promise<number> {
  const count = async () => {
    const { rows } = await client.query<{ count: number }>(
      `SELECT (seq_tup_read + coalesce(idx_tup_fetch, 0))::int AS count
         FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname = $2`,
      [db.schema, table],
    );
    return only(rows).count;
  };
  await client.query('BEGIN');
  const before = await count();
  await work();
  const after = await count();
  await client.query('COMMIT');
  return after - before;
}

it('P2 C4 the counters see a sequential scan', async () => {
  const scan = () => client.query(`SELECT count(namespace) FROM ${db.quoted}.lanes`);
  expect(await rowsRead('lanes', scan)).toBeGreaterThanOrEqual(lanes);
});

it.each(['lanes', 'deliveries'])(
  'P2 C4 a claim and its settle read few rows of %s beside 100,000 blocked keys',
  async (table) => {
    await queue.enqueueAll(Array.from({ length: due }, (_, n) => ({ key: `${table}-${n}` })));
    let claimed = 0;
    const read = await rowsRead(table, async () => {
      const claim = await queue.claim({ on: client });
      claimed = claim.ids.length;
      await settleDelivered(db, claim, client);
    });
    expect(claimed).toBe(due);
    expect(read).toBeLessThanOrEqual(10 * due);
  },
);

it('P2 C4 an empty claim reads almost nothing', async () => {
  const look = () => queue.claim({ on: client });
  expect(await rowsRead('lanes', look)).toBeLessThanOrEqual(2);
  expect(await rowsRead('deliveries', look)).toBeLessThanOrEqual(2);
});
