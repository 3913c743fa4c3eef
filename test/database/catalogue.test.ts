// The event catalogue and the flow over HTTP: declared events and topics that were only seen, with their receivers.

import { expect, it } from 'vitest';
import { z } from 'zod';

import { defineEvents } from '../../src/producer/events/define-events.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { addEndpoint } from '../support/endpoints.js';
import { enqueueMany } from '../support/outbox.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { fillNow } from '../support/reports.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();

const events = defineEvents({
  'user.registered': z.object({ email: z.string() }).describe('A user has an account now.'),
  'user.registered.v2': z.object({ contact: z.object({ email: z.string() }) }),
  'user.odd': z.object({ amount: z.string().transform((text) => BigInt(text)) }),
});

async function prepare() {
  const { rows } = await db.query(`SELECT FROM ${db.quoted}.messages LIMIT 1`);
  if (rows.length === 0) {
    await addRoute(db, await defineDestination(db, 'welcome'), 'user.*');
    await addRoute(db, await defineDestination(db, 'archive'), '*');
    await addRoute(db, await defineDestination(db, 'billing'), 'order.paid');
    await addEndpoint(db, {
      url: 'https://example.com/hook',
      topics: ['user.registered'],
      tenantId: 'acme',
    });
    await addEndpoint(db, {
      url: 'https://example.com/hook',
      topics: ['user.*', 'user.registered'],
      tenantId: 'acme',
    });
    await addEndpoint(db, {
      url: 'https://example.com/hook',
      topics: ['order.*'],
      tenantId: 'acme',
    });
    await enqueueMany(db, db.pool, [
      { topic: 'user.registered' },
      { topic: 'user.registered' },
      { topic: 'order.paid' },
    ]);
    await fillNow(db);
  }
  return (await serveDatabase(db, { config: { events } })).as('read');
}

it('W5 the catalogue has declared events and topics that were only seen, with receivers and volume', async () => {
  const ask = await prepare();
  const { status, body } = await ask('GET', '/api/catalogue');
  expect(status).toBe(200);
  expect(body['events']).toMatchObject([
    { topic: 'order.paid', declared: false, destinations: ['archive', 'billing'], messages: 1 },
    { topic: 'user.odd', declared: true, messages: 0 },
    {
      topic: 'user.registered',
      version: 1,
      declared: true,
      description: 'A user has an account now.',
      destinations: ['archive', 'welcome'],
      messages: 2,
    },
    { topic: 'user.registered.v2', event: 'user.registered', version: 2, messages: 0 },
  ]);
});

it('W5 an event has its schema, example, versions, receivers, endpoints and volume', async () => {
  const ask = await prepare();
  const { body } = await ask('GET', '/api/catalogue/event?topic=user.registered');
  expect(body).toMatchObject({
    topic: 'user.registered',
    declared: true,
    schema: { type: 'object', properties: { email: { type: 'string' } } },
    problem: null,
    example: { email: expect.any(String) as string },
    versions: ['user.registered', 'user.registered.v2'],
    receivers: [
      { destination: 'archive', topic: '*', namespace: null, tenantId: null },
      { destination: 'welcome', topic: 'user.*', namespace: null, tenantId: null },
    ],
    endpoints: 2,
    volume: { '1h': 2, '24h': 2, '7d': 2, '30d': 2 },
  });
  const seen = await ask('GET', '/api/catalogue/event?topic=order.paid');
  expect(seen.body).toMatchObject({ declared: false, schema: null, endpoints: 1, versions: [] });
  const odd = await ask('GET', '/api/catalogue/event?topic=user.odd');
  expect(odd.body).toMatchObject({
    schema: null,
    problem: expect.stringContaining('user.odd') as string,
  });
});

it('W5 an unknown topic is not found, and a token of one tenant sees no catalogue', async () => {
  const ask = await prepare();
  const { status, body } = await ask('GET', '/api/catalogue/event?topic=no.such');
  expect([status, body['error']]).toEqual([404, expect.stringContaining('topic is "no.such"')]);
  expect((await ask('GET', '/api/catalogue/event')).status).toBe(400);
  const limited = await (await serveDatabase(db)).as('read', 'acme');
  for (const path of ['catalogue', 'catalogue/event?topic=user.registered', 'flow'])
    expect((await limited('GET', `/api/${path}`)).status, path).toBe(403);
});

it('W5 the flow has topics with their destinations, and problems first', async () => {
  const ask = await prepare();
  await db.query(`SELECT ${db.quoted}.set_paused('welcome', true, 'ann')`);
  await db.query(
    `SELECT ${db.quoted}.add_statistics(ARRAY[id], '{0}', '{3}', '{1}') FROM ${db.quoted}.destinations WHERE name = 'billing'`,
  );
  // a paused destination is only paused, whatever else is wrong with it
  await db.query(
    `SELECT ${db.quoted}.add_statistics(ARRAY[id], '{0}', '{5}', '{0}') FROM ${db.quoted}.destinations WHERE name = 'welcome'`,
  );
  await db.query(
    `INSERT INTO ${db.quoted}.relays (id, name, version, configuration, destinations, started_at, heartbeat_at, breakers)
     VALUES (gen_random_uuid(), 'r', '0.2.0', 'c', '{}', now(), now(), '{"welcome": {"state": "open", "since": "2026-01-01T00:00:00Z", "failures": 3}}')`,
  );
  // the present slice does not count yet
  await db.query(`UPDATE ${db.quoted}.statistics SET slice = slice - interval '20 seconds'`);
  const { body } = await ask('GET', '/api/flow');
  expect(body).toMatchObject({
    topics: [
      { topic: 'user.registered', destinations: ['archive', 'welcome'] },
      { topic: 'order.paid', destinations: ['archive', 'billing'] },
    ],
    destinations: [
      { name: 'billing', state: 'bad', problem: 'every try fails' },
      { name: 'welcome', state: 'warn', problem: 'paused' },
      { name: 'archive', state: 'good', problem: null },
    ],
    otherTopics: 0,
    otherDestinations: 0,
  });
  const [first] = body['topics'] as { perSecond: number }[];
  expect(first?.perSecond).toBeGreaterThan(0);
});

it('W5 the flow names the period of the rates of topics, and destinations have those of the last minute', async () => {
  const ask = await prepare();
  // eleven slices: the one that is running does not count, and the oldest ones are more than a minute old
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') - n * interval '10 seconds', d.id, 20, 9, 1
       FROM ${db.quoted}.destinations d, generate_series(0, 10) n
      WHERE d.name = 'archive'`,
  );
  const { body } = await ask('GET', '/api/flow');
  const { body: listed } = await ask('GET', '/api/destinations?search=archive');
  const [from, to] = [body['from'], body['to']].map((time) => Date.parse(time as string));
  // the outbox is new: the period begins with its first message, not with the slice
  const { rows } = await db.query<{ at: Date }>(
    `SELECT min(created_at) AS at FROM ${db.quoted}.messages`,
  );
  expect(Math.abs((from ?? 0) - only(rows).at.getTime())).toBeLessThan(1000);
  const seconds = ((to ?? 0) - (from ?? 0)) / 1000;
  expect(seconds).toBeGreaterThan(0);
  const perSecond = (list: string, key: string, name: string) =>
    (body[list] as Record<string, unknown>[]).find((each) => each[key] === name)?.['perSecond'];
  expect(perSecond('topics', 'topic', 'user.registered')).toBeCloseTo(2 / seconds, 3);
  expect(perSecond('destinations', 'name', 'archive')).toBe(3);
  expect(listed['destinations']).toMatchObject([{ name: 'archive', triesPerSecond: 3 }]);
});

it('W5 a flow of many topics and destinations is cut to 20 of each at most', async () => {
  const ask = await prepare();
  for (let n = 0; n < 25; n += 1)
    await addRoute(db, await defineDestination(db, `many-${n}`), `many.${n}`);
  const { body } = await ask('GET', '/api/flow');
  expect(body['destinations']).toHaveLength(20);
  expect(body['otherDestinations']).toBe(8);
  // topics of the destinations that are not shown are only counted
  const topics = body['topics'] as { topic: string; destinations: string[] }[];
  expect(topics.length).toBeLessThanOrEqual(20);
  expect(topics.length + Number(body['otherTopics'])).toBe(27);
  expect(topics.every(({ destinations }) => destinations.length > 0)).toBe(true);
});

it('W5 a destination with dead letters is not good in the flow', async () => {
  const ask = await prepare();
  const queue = await makeQueue(db);
  await makeDead(queue, 1, 'refused');
  const { body } = await ask('GET', '/api/flow');
  expect(body['destinations']).toContainEqual(
    expect.objectContaining({ name: queue.name, state: 'warn', problem: 'dead letters' }),
  );
});
