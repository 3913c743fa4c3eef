// Search among many pending messages: it starts from the filter with the fewest entries, so the first request finds
// rare messages behind thousands of others, and every page says how far the search has come.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { listMessages } from '../../src/listing/message-list.js';
import type { MessageFilter } from '../../src/listing/message-ranges.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const opened = new Database(resolveDatabaseOptions({ url: db.url, schema: db.schema }), {
  connections: 2,
  applicationName: 'test',
});
const many = 6000;
let queue: Queue;
let other: Queue;
/** The newest messages, of the last key. */
let rare: string[];

beforeAll(async () => {
  queue = await makeQueue(db);
  other = await makeQueue(db);
  await db.query(`INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES ($1, 'rare')`, [
    queue.id,
  ]);
  const common = { tenantId: 'common', aggregateType: 'order', aggregateId: '1' };
  await queue.enqueueAll(
    Array.from({ length: many }, (_, n) => ({ ...common, key: `key ${n % 500}` })),
  );
  rare = await queue.enqueue(30, {
    topic: 'rare',
    tenantId: 'rare',
    key: 'last key',
    aggregateType: 'order',
    aggregateId: '2',
  });
  await db.query(`INSERT INTO ${db.quoted}.unrouted_messages (message_id) SELECT $1`, [rare[0]]);
  await db.query(
    `INSERT INTO ${db.quoted}.dead_letters
       (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, namespace, topic, tenant_id)
     SELECT gen_random_uuid(), $1, now() - n * interval '1 second', 1, 1, 'rejected', 'code', 'default', 'topic',
            CASE WHEN n > ${4 * many} THEN 'rare' ELSE 'common' END
       FROM generate_series(1, ${4 * many + 20}) n`,
    [other.id],
  );
}, 60_000);

afterAll(() => opened.close());

describe('W5 the first request of a search finds rare messages', () => {
  const filters: [string, MessageFilter][] = [
    ['of a tenant', { status: 'pending', tenantId: 'rare' }],
    ['of a topic', { status: 'pending', topic: 'rare' }],
    ['of an aggregate', { status: 'pending', aggregateId: '2' }],
    ['of a key', { status: 'pending', key: 'last key' }],
    [
      'of a topic and a common aggregate type',
      { status: 'pending', topic: 'rare', aggregateType: 'order' },
    ],
    ['of any status, by aggregate id alone', { aggregateId: '2' }],
  ];
  it.each(filters)('%s', async (_name, filter) => {
    const page = await listMessages(opened, filter, { limit: 50 });
    const found = page.messages.map(({ messageId }) => messageId);
    expect(new Set(found)).toEqual(new Set(rare));
    expect(page).toMatchObject({ next: null });
    expect(page.searched).toBeLessThanOrEqual(100);
  });

  it('at one destination, and none at another', async () => {
    const filter = { status: 'pending', tenantId: 'rare' } as const;
    const here = await listMessages(opened, { ...filter, destination: queue.name }, { limit: 50 });
    expect(here.messages).toHaveLength(30);
    const there = await listMessages(opened, { ...filter, destination: other.name }, { limit: 50 });
    expect(there).toMatchObject({ messages: [], next: null });
  });

  it('that are retrying', async () => {
    const at = { status: 'retrying', tenantId: 'rare' } as const;
    expect(await listMessages(opened, at, { limit: 50 })).toMatchObject({ messages: [] });
    await db.query(`UPDATE ${db.quoted}.deliveries SET tries = 1`);
    const page = await listMessages(opened, at, { limit: 50 });
    expect(page.messages).toHaveLength(30);
    expect(page.searched).toBeLessThanOrEqual(100);
    await db.query(`UPDATE ${db.quoted}.deliveries SET tries = 0`);
  });

  it('that are dead', async () => {
    const filter = { status: 'dead', destination: other.name, tenantId: 'rare' } as const;
    const page = await listMessages(opened, filter, { limit: 50 });
    expect(page.messages).toHaveLength(20);
    expect(page.searched).toBeLessThanOrEqual(100);
    const elsewhere = { ...filter, destination: queue.name };
    expect(await listMessages(opened, elsewhere, { limit: 50 })).toMatchObject({ messages: [] });
  });
});

describe('W5 an HTTP status is an error code', () => {
  it.each(['retry', 'reject'] as const)('of messages with the outcome %s', async (outcome) => {
    const failing = await makeQueue(db);
    const [busy = '', broken = '', own = '', timeout = ''] = await failing.enqueue(4);
    const claim = await failing.claim({ limit: 4 });
    const errors = [
      { id: busy, errorCode: 'http_status', remoteCode: '503' },
      { id: broken, errorCode: 'http_status', remoteCode: '500' },
      { id: own, errorCode: '503' },
      { id: timeout, errorCode: 'timeout' },
    ];
    await settle(
      db,
      claim,
      errors.map((error) => ({ ...error, outcome, retryAfterMs: 3_600_000 })),
    );
    const status = outcome === 'retry' ? 'retrying' : 'dead';
    const found = async (filter: MessageFilter) => {
      const page = await listMessages(
        opened,
        { destination: failing.name, ...filter },
        { limit: 50 },
      );
      return new Set(page.messages.map(({ messageId }) => messageId));
    };
    for (const filter of [
      {},
      { status },
      { topic: failing.topic },
      { status, id: busy },
    ] as const) {
      const expected = 'id' in filter ? [busy] : [busy, own];
      expect(await found({ ...filter, errorCode: '503' })).toEqual(new Set(expected));
    }
    expect(await found({ errorCode: '500' })).toEqual(new Set([broken]));
    expect(await found({ errorCode: 'http_status' })).toEqual(new Set([busy, broken]));
    expect(await found({ errorCode: '404' })).toEqual(new Set());
  });
});

it('W5 a message that failed several times comes once, and hides no other', async () => {
  const failing = await makeQueue(db);
  const all = await failing.enqueue(60);
  await db.query(
    `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
     SELECT id, $2, n, n, 'retryable', now(), 'often' FROM unnest($1::uuid[]) id, generate_series(1, 3) n`,
    [all, failing.id],
  );
  const page = await listMessages(opened, { errorCode: 'often' }, { limit: 100 });
  expect(page.messages.map(({ messageId }) => messageId)).toEqual(all.toReversed());
  const first = await listMessages(opened, { errorCode: 'often' }, { limit: 40 });
  expect(first.messages).toHaveLength(40);
  expect(first.next).not.toBeNull();
});

it('W5 a search goes on from its start page by page, and finds each message once', async () => {
  const found: string[] = [];
  for (let next: string | null | undefined; next !== null;) {
    const page = await listMessages(
      opened,
      { status: 'pending', tenantId: 'rare' },
      { limit: 7, ...(next && { next }) },
    );
    found.push(...page.messages.map(({ messageId }) => messageId));
    next = page.next;
  }
  expect(found).toEqual(rare.toReversed());
});

it('W5 each page says how many entries were searched, and an empty one is not the end', async () => {
  let searched = 0;
  let pages = 0;
  for (let next: string | null | undefined; next !== null; pages += 1) {
    const page = await listMessages(
      opened,
      { status: 'pending', aggregateType: 'none', destination: queue.name },
      { limit: 50, budgetMs: 0, ...(next && { next }) },
    );
    expect(page.messages).toEqual([]);
    // the queue of messages without a key is empty
    expect(page.searched).toBeGreaterThanOrEqual(pages === 0 || page.next === null ? 0 : 100);
    searched += page.searched;
    expect(page.searchedInAll).toBe(searched);
    next = page.next;
  }
  expect(searched).toBe(many + rare.length);
  expect(pages).toBeGreaterThan(10);
});

it('W5 the size of a range is exact while it is small, and an estimate above', async () => {
  const sizesOf = async (ranges: string[], filter: object) => {
    const { rows } = await db.query<{ range: string; entries: string }>(
      `SELECT * FROM ${db.quoted}.search_sizes($1, $2)`,
      [ranges, JSON.stringify(filter)],
    );
    return Object.fromEntries(rows.map(({ range, entries }) => [range, Number(entries)]));
  };
  const all = { topic: 'rare', tenantId: 'common', destination: queue.name };
  expect(await sizesOf(['pending', 'topic', 'tenant'], all)).toEqual({
    pending: 1000,
    topic: 30,
    tenant: 1000,
  });
  await db.query(`ANALYZE ${db.quoted}.messages, ${db.quoted}.deliveries`);
  const large = await sizesOf(['pending', 'tenant'], all);
  expect(large['tenant']).toBeGreaterThanOrEqual(5000);
  expect(large['pending']).toBeGreaterThanOrEqual(5000);
  await expect(sizesOf(['unknown'], all)).rejects.toThrow(
    'p_range is "unknown", which is no range of a search',
  );
  const timed = { ...all, from: new Date(Date.now() - 600_000), to: new Date() };
  expect((await sizesOf(['topic', 'key'], { ...timed, key: 'last key' }))['topic']).toBe(30);
  const before = { ...timed, to: timed.from, from: new Date(0) };
  expect((await sizesOf(['topic', 'tenant'], before))['topic']).toBe(0);
  // beside nothing to compare with, it is not counted
  expect((await sizesOf(['topics', 'all'], { topic: 'rare.*' }))['topics']).toBeLessThan(9e17);
});
