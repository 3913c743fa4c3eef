// Filters of endpoints: which payloads they want, that enqueue evaluates them the same way for one message and for many,
// and that no filter can keep a message from being enqueued, nor be stored if it is malformed.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { payloadFilter } from '../../src/features/endpoints/filter.js';
import type { PayloadFilter } from '../../src/features/endpoints/filter.js';
import {
  addEndpoint,
  endpointsOf,
  startEndpointRelay,
  startReceiver,
} from '../support/endpoints.js';
import { enqueueMany, makeQueue, misplaced, Queue } from '../support/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, untilEnded } from '../support/relay.js';
import { addRoute } from '../support/destinations.js';

const db = testDatabase();

async function makeEndpoint(filter: PayloadFilter | undefined, topic?: string): Promise<Queue> {
  const name = `ep-${randomUUID()}`;
  await addEndpoint(db, {
    url: 'https://example.com',
    topics: [topic ?? name],
    name,
    ...(filter && { filter }),
  });
  const { rows } = await db.query<{ id: number }>(
    `SELECT id FROM ${db.quoted}.destinations WHERE name = $1`,
    [name],
  );
  return new Queue(db, name, only(rows).id);
}

async function pending(endpoint: Queue): Promise<string[]> {
  return (await endpoint.waiting()).map(({ message_id }) => message_id);
}

const payload = {
  type: 'invoice.paid',
  amount: 150,
  fee: -2.5,
  currency: 'EUR',
  paid: true,
  note: null,
  customer: { country: 'DE', 'first name': 'Ann', quote: 'a "b" \\ c' },
  tags: ['new', 'vip'],
  lines: [
    { sku: 'a1', count: 1 },
    { sku: 'b2', count: 7 },
  ],
  at: '2026-03-01T10:00:00Z',
};

const wanted: PayloadFilter[] = [
  { type: 'invoice.paid' },
  { amount: 150 },
  { fee: -2.5 },
  { fee: { lt: -2 } },
  { paid: true },
  { note: null },
  { note: { exists: true } },
  { 'customer.country': 'DE' },
  { 'customer.country': { in: ['FR', 'DE'] } },
  { 'customer.first name': 'Ann' },
  { 'customer.quote': 'a "b" \\ c' },
  { 'customer.city': { exists: false } },
  { type: { prefix: 'invoice.' } },
  { amount: { gte: 150, lt: 151 } },
  { amount: { gt: 149.999 } },
  { at: { gte: '2026-01-01', lt: '2027' } },
  { tags: 'vip' },
  { tags: { prefix: 'v' } },
  { 'lines.count': { gt: 5 } },
  { amount: { in: [1, 150, 'x', null, false] } },
  { type: 'invoice.paid', amount: { gte: 100 }, 'customer.country': { in: ['DE'] } },
];

const unwanted: PayloadFilter[] = [
  { type: 'invoice' },
  { amount: '150' },
  { amount: 151 },
  { amount: { gt: 150 } },
  { amount: { gt: '1' } },
  { currency: { gt: 1 } },
  { missing: null },
  { missing: { exists: true } },
  { missing: { gt: 0 } },
  { missing: { in: ['x'] } },
  { note: { exists: false } },
  { 'type.deeper': 'x' },
  { 'customer.country': { in: ['FR'] } },
  { type: { prefix: 'receipt.' } },
  { amount: { prefix: '1' } },
  { type: 'invoice.paid', amount: { gte: 1000 } },
  { '"': 'x' },
  { $: 1, '@': 2 },
];

describe('a filter', () => {
  it.each(wanted)('%j wants the payload', async (filter) => {
    const endpoint = await makeEndpoint(filter);
    const id = await endpoint.enqueueOne({ payload });
    expect(await pending(endpoint)).toEqual([id]);
  });

  it.each(unwanted)('%j does not want the payload', async (filter) => {
    const endpoint = await makeEndpoint(filter);
    await endpoint.enqueueOne({ payload });
    expect(await pending(endpoint)).toEqual([]);
  });

  it.each([null, 1, 'text', true, [], [1, 'x'], {}, [[{ amount: 'x' }]]])(
    'is no error for the payload %j',
    async (odd) => {
      const endpoint = await makeEndpoint({ amount: { gte: 1 }, 'a.b.c': { prefix: 'x' } });
      await endpoint.enqueueOne({ payload: odd });
      expect(await pending(endpoint)).toEqual([]);
    },
  );

  it('chooses among the messages of a batch, in which other endpoints want all of them', async () => {
    const topic = `batch.${randomUUID()}`;
    const [large, all, vip] = [
      await makeEndpoint({ n: { gt: 50 } }, topic),
      await makeEndpoint(undefined, topic),
      await makeEndpoint({ tags: 'vip' }, topic),
    ];
    const queue = await makeQueue(db);
    await addRoute(db, queue.id, topic);
    const messages = Array.from({ length: 100 }, (_, index) => ({
      topic,
      payload: { n: index + 1, tags: index % 10 === 0 ? ['vip'] : [] },
      ...(index % 2 === 0 && { key: `k${index % 4}` }),
    }));
    const ids = (await enqueueMany(db, db.pool, messages)).map(({ id }) => id);
    expect((await pending(large)).toSorted()).toEqual(ids.slice(50).toSorted());
    expect((await pending(all)).toSorted()).toEqual(ids.toSorted());
    expect((await pending(queue)).toSorted()).toEqual(ids.toSorted());
    expect((await pending(vip)).toSorted()).toEqual(
      ids.filter((_, index) => index % 10 === 0).toSorted(),
    );
    // messages with a key are claimed too
    const claimed = new Set<string>();
    for (let round = 0; round < 20; round += 1)
      for (const id of (await vip.claim()).ids) claimed.add(id);
    expect(claimed.size).toBe(10);
    const lost = (await misplaced(db)).filter(({ message_id }) => ids.includes(String(message_id)));
    expect(lost).toEqual([]);
  });

  it('that refuses a message does not make it unrouted, and explain says why it is nowhere', async () => {
    const endpoint = await makeEndpoint({ amount: { gte: 100 } });
    const one = await endpoint.enqueueOne({ payload: { amount: 1 } });
    const [two = ''] = await endpoint.enqueueAll([{ payload: {} }, { payload: { amount: 'x' } }]);
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.unrouted_messages WHERE message_id = ANY ($1)`,
      [[one, two]],
    );
    expect(rows).toEqual([]);
    const explained = await db.query(`SELECT * FROM ${db.quoted}.explain($1)`, [one]);
    expect(explained.rows).toMatchObject([
      { destination: endpoint.name, status: 'filtered', reason: 'filtered_out' },
    ]);
  });

  it('holds for messages enqueued after it was set, and for replays', async () => {
    const endpoint = await makeEndpoint(undefined);
    const which = { name: endpoint.name };
    const before = await endpoint.enqueueOne({ payload: { amount: 1 } });
    await endpointsOf(db).change(db.pool, which, { filter: { amount: { gte: 100 } } });
    expect(only(await endpointsOf(db).list(db.pool, which)).filter).toEqual({
      amount: { gte: 100 },
    });
    const small = await endpoint.enqueueOne({ payload: { amount: 2 } });
    const large = await endpoint.enqueueOne({ payload: { amount: 100 } });
    expect(await pending(endpoint)).toEqual([before, large]);
    const plan = await db.query(`SELECT messages FROM ${db.quoted}.plan_replay($1, topic => $1)`, [
      endpoint.name,
    ]);
    expect(only(plan.rows)).toEqual({ messages: '1' });
    await endpointsOf(db).change(db.pool, which, { filter: null });
    const plain = await endpoint.enqueueOne({ payload: { amount: 3 } });
    expect(await pending(endpoint)).toEqual([before, large, plain]);
    expect(await pending(endpoint)).not.toContain(small);
  });
});

describe('a malformed filter is refused when it is set, by the library and by the database', () => {
  const malformed: [unknown, string][] = [
    [[], 'give an object such as'],
    ['amount > 1', 'give an object such as'],
    [{}, 'give an object such as'],
    [{ amount: [1, 2] }, 'filter.amount is'],
    [{ amount: {} }, 'filter.amount is {}: give a text, a number'],
    [{ amount: { eq: 1 } }, 'filter.amount.eq is not an operator: use in, exists, prefix, gt'],
    [{ amount: { in: 1 } }, 'filter.amount.in is 1: give a list of 1 to 100'],
    [{ amount: { in: [] } }, 'filter.amount.in is []: give a list of 1 to 100'],
    [{ amount: { in: [{}] } }, 'give a list of 1 to 100'],
    [{ amount: { exists: 'yes' } }, 'filter.amount.exists is "yes": give true or false'],
    [{ amount: { prefix: 1 } }, 'filter.amount.prefix is 1: give a text'],
    [{ amount: { prefix: '' } }, 'give a text'],
    [{ amount: { gt: null } }, 'filter.amount.gt is null: give a number or a text'],
    [{ amount: { lte: true } }, 'filter.amount.lte is true: give a number or a text'],
    [{ 'a..b': 1 }, 'filter has the field "a..b": give 1 to 10 names joined by dots'],
    [{ '': 1 }, 'give 1 to 10 names joined by dots'],
    [{ 'a.b.c.d.e.f.g.h.i.j.k': 1 }, 'give 1 to 10 names joined by dots'],
    [
      Object.fromEntries(Array.from({ length: 21 }, (_, n) => [`f${n}`, n])),
      'filter has 21 fields: give at most 20',
    ],
    [{ a: 'x'.repeat(4096) }, 'bytes: give at most 4096'],
  ];

  it.each(malformed)('%j', async (filter, problem) => {
    expect(() => payloadFilter('filter', filter)).toThrow(problem);
    const { name } = await addEndpoint(db, { url: 'https://example.com' });
    await expect(
      db.query(`SELECT ${db.quoted}.change_endpoint($1, $2)`, [name, JSON.stringify({ filter })]),
    ).rejects.toMatchObject({
      code: '22023',
      message: expect.stringContaining(problem) as string,
    });
  });

  it('and whatever the library accepts, the database accepts', () => {
    for (const filter of [...wanted, ...unwanted])
      expect(payloadFilter('filter', filter)).toEqual(filter);
  });
});

it('W2 a receiver gets only what its filter wants', async () => {
  await startEndpointRelay(db);
  const receiver = await startReceiver();
  const topic = `paid.${randomUUID()}`;
  const { name } = await addEndpoint(db, {
    url: receiver.url,
    topics: [topic],
    filter: { amount: { gte: 100 } },
  });
  await sendOne(db, { topic, payload: { amount: 99 } });
  const id = await sendOne(db, { topic, payload: { amount: 100 } });
  await receiver.has(id);
  await untilEnded(db, name);
  expect(receiver.ids).toEqual([id]);
});
