// The message list goes back through the days, a few at a time. Over empty days, within a time range, and from any
// cursor, it returns every message once, and its queries open only the partitions that they need.

import { afterAll, beforeAll, expect, it } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { Days } from '../../src/listing/message-days.js';
import { listMessages } from '../../src/listing/message-list.js';
import type { MessageFilter } from '../../src/listing/message-ranges.js';
import { deliverAll, finish, startReplay } from '../support/replays.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase({ allPartitions: true });
const opened = new Database(resolveDatabaseOptions({ url: db.url, schema: db.schema }), {
  connections: 2,
  applicationName: 'test',
});
const daysAgo = (days: number): Date => new Date(Date.now() - days * 86_400_000);
/** With gaps of many days between them. */
const ages = [0, 1, 2, 5, 20, 21, 39];
/** Newest first. */
const made: { id: string; age: number }[] = [];

beforeAll(async () => {
  await db.query(`SELECT ${db.quoted}.make_partitions(60, (now() - interval '41 days')::date)`);
  for (const age of ages) {
    const { rows } = await db.query<{ id: string }>(
      `WITH made AS (
         INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, tenant_id, payload)
         SELECT 2, overlay(${db.quoted}.id_at($1::timestamptz + n * interval '1 ms')::text PLACING '7' FROM 15 FOR 1)::uuid, $1, pg_current_xact_id(), 'default', 'day', 'old', '{}'
           FROM generate_series(1, 3) n RETURNING id)
       INSERT INTO ${db.quoted}.unrouted_messages (message_id) SELECT id FROM made RETURNING message_id AS id`,
      [daysAgo(age)],
    );
    made.push(...rows.map(({ id }) => ({ id, age })));
  }
  made.sort((a, b) => (a.id < b.id ? 1 : -1));
}, 60_000);

afterAll(() => opened.close());

/** All pages, and how many there were. */
async function walk(filter: MessageFilter, limit: number, budgetMs?: number) {
  const ids: string[] = [];
  let pages = 0;
  for (let next: string | null | undefined; next !== null; pages += 1) {
    const page = await listMessages(opened, filter, {
      limit,
      ...(next && { next }),
      ...(budgetMs !== undefined && { budgetMs }),
    });
    ids.push(...page.messages.map(({ messageId }) => messageId));
    next = page.next;
  }
  return { ids, pages };
}

it.each([
  ['all of a topic', { topic: 'day' }],
  ['all of a tenant', { tenantId: 'old' }],
  ['by no index alone', { namespace: 'default', topic: 'day', tenantId: 'old' }],
] as const)('W5 %s are listed newest first, over empty days', async (_name, filter) => {
  for (const limit of [1, 2, 50])
    expect((await walk(filter, limit)).ids).toEqual(made.map(({ id }) => id));
});

it('W5 a time range bounds the list at both ends', async () => {
  const filter = { topic: 'day', from: daysAgo(20.5), to: daysAgo(1.5) };
  const wanted = made.filter(({ age }) => age >= 2 && age <= 20).map(({ id }) => id);
  expect((await walk(filter, 2)).ids).toEqual(wanted);
  expect((await walk({ ...filter, from: daysAgo(18), to: daysAgo(10) }, 2)).ids).toEqual([]);
});

it('W5 a list that runs out of time continues from its cursor, and misses nothing', async () => {
  const { ids, pages } = await walk({ topic: 'day' }, 50, 0);
  expect(ids).toEqual(made.map(({ id }) => id));
  // a step each: this many days with messages, the first alone
  expect(pages).toBeGreaterThan(3);
  const nothing = await walk({ topic: 'day', key: 'unknown' }, 50, 0);
  expect(nothing.ids).toEqual([]);
});

it('W5 a query opens only the partitions of its range', async () => {
  const days = await Days.read(opened, 'messages', {});
  const span = days.before('ffffffff-ffff-ffff-ffff-ffffffffffff', 2);
  expect(span?.days).toBe(2);
  const { rows } = await db.query<{ 'QUERY PLAN': string }>(
    `EXPLAIN (COSTS off) SELECT id FROM ${db.quoted}.messages WHERE id < '${span?.to}' AND id >= '${span?.from}' ORDER BY id DESC LIMIT 100`,
  );
  // none of the sixty days ahead, none of those before
  expect(rows.filter((row) => /Scan/.test(row['QUERY PLAN']))).toHaveLength(2);
  expect(days.before(span?.from ?? '', 100)?.days).toBe(ages.length - 2);
  expect(days.before(made.at(-1)?.id ?? '', 1)?.days).toBe(1);
  expect(days.before('00000000-0000-7000-8000-000000000000', 1)).toBeNull();
});

it('M5 W5 a replayed message is listed once, with its current state', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await queue.enqueue(1);
  await deliverAll(db, queue);
  const { replay_id: replay } = await startReplay(db, queue.name, { ids: [id], actor: 'ann' });
  await finish(db, replay);
  const { messages } = await listMessages(opened, { id }, { limit: 10 });
  expect(messages.map(({ status }) => status)).toEqual(['pending']);
  expect((await queue.status(id))?.['status']).toBe('pending');
  await deliverAll(db, queue);
  const again = await listMessages(opened, { id }, { limit: 10 });
  expect(again.messages.map(({ status }) => status)).toEqual(['delivered']);
});

it('W5 the slot of an id never goes down with a higher id, and is never negative', async () => {
  const { rows } = await db.query<{ slots: number[] }>(
    `SELECT array_agg(${db.quoted}.id_slot(i.id)::float8 ORDER BY i.id) AS slots
       FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, 1000)
             UNION ALL SELECT unnest('{00000000-0000-0000-0000-000000000000,ffffffff-ffff-ffff-ffff-ffffffffffff}'::uuid[])
             UNION ALL SELECT ${db.quoted}.id_at(now() + n * interval '1 minute') FROM generate_series(1, 60) n) i`,
  );
  const [{ slots } = { slots: [] }] = rows;
  expect(slots).toEqual(slots.toSorted((a, b) => a - b));
  expect(slots[0]).toBe(0);
});
