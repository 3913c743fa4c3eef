// Messages of an endpoint over HTTP, with a relay that delivers them to a real receiver: tests, attempts, resends,
// replays, statistics.

import { describe, expect, it } from 'vitest';

import type { EndpointStatus } from '../../src/features/endpoints/endpoints.js';
import {
  addEndpoint,
  endpointsOf,
  setKey,
  startEndpointRelay,
  startReceiver,
  testKey,
} from '../support/endpoints.js';
import type { Receiver } from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, untilEnded, untilPlaces } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

type Listed = {
  messageId: string;
  status: string;
  tenantId: string | null;
  topic: string;
  attempts: { state: string; remoteCode: string | null; errorCode: string | null }[];
};

async function setUp(tenantId: string): Promise<{
  ask: Ask;
  receiver: Receiver;
  name: EndpointStatus['name'];
  path: string;
}> {
  setKey(testKey);
  const receiver = await startReceiver();
  const { name } = await addEndpoint(db, { url: receiver.url, tenantId, topics: ['order.*'] });
  const ask = await (await serveDatabase(db)).as('operate', tenantId);
  return { ask, receiver, name, path: `/api/endpoints/${name}` };
}

async function listed(ask: Ask, path: string, query = ''): Promise<Listed[]> {
  const { status, body } = await ask('GET', `${path}/messages${query}`);
  expect(status, JSON.stringify(body)).toBe(200);
  return body['messages'] as Listed[];
}

describe('messages of an endpoint', () => {
  it('W5 are listed with their attempts, also the test message, and no others', async () => {
    const { ask, receiver, name, path } = await setUp('listing');
    const other = await addEndpoint(db, { url: receiver.url, tenantId: 'listing', topics: ['x'] });
    receiver.status = 422;
    const refused = await sendOne(db, { topic: 'order.made', tenantId: 'listing' });
    const elsewhere = await sendOne(db, { topic: 'x', tenantId: 'listing' });
    await startEndpointRelay(db, {
      endpoints: { allowedNetworks: ['127.0.0.0/8'], terminalCodes: [422], keepResponses: 'all' },
    });
    await untilEnded(db, name);
    await untilEnded(db, other.name);
    expect((await ask('GET', path)).body).toMatchObject({ failing: true, dead: 1, waiting: 0 });
    receiver.status = 204;
    const { body } = await ask('POST', `${path}/test`);
    const tested = body['messageId'] as string;
    await receiver.has(tested);
    await untilEnded(db, name);
    const messages = await listed(ask, path);
    expect(messages).toMatchObject([
      {
        messageId: tested,
        status: 'delivered',
        topic: 'waybill.test',
        tenantId: 'listing',
        attempts: [{ state: 'dispatched', remoteCode: '204' }],
      },
      {
        messageId: refused,
        status: 'dead',
        topic: 'order.made',
        attempts: [{ remoteCode: '422', response: 'an answer' }],
      },
    ]);
    expect(await listed(ask, path, '?status=dead')).toMatchObject([{ messageId: refused }]);
    expect(await listed(ask, path, '?topic=waybill.test')).toMatchObject([{ messageId: tested }]);
    expect(await listed(ask, path, '?status=delivered&limit=1')).toHaveLength(1);
    expect(await listed(ask, `/api/endpoints/${other.name}`)).toMatchObject([
      { messageId: elsewhere },
    ]);
    expect((await ask('GET', path)).body).toMatchObject({ failing: false, dead: 1, waiting: 0 });
  });

  it('W5 are sent again: pending ones are due, dead ones retried, delivered ones replayed', async () => {
    const { ask, receiver, name, path } = await setUp('resending');
    const send = (topic: string) => sendOne(db, { topic, tenantId: 'resending' });
    const resend = (id: string) => ask('POST', `${path}/messages/${id}/resend`);
    receiver.status = 503;
    const waits = await send('order.made');
    await startEndpointRelay(db, {
      endpoints: {
        allowedNetworks: ['127.0.0.0/8'],
        terminalCodes: [422],
        retry: { delaysMs: [3_600_000] },
      },
    });
    await receiver.has(waits);
    await waitFor(async () => (await listed(ask, path, '?status=retrying')).length === 1, {
      what: 'the message to wait for a retry',
    });
    receiver.status = 422;
    const dies = await send('order.made');
    await waitFor(async () => (await listed(ask, path, '?status=dead')).length === 1, {
      what: 'the dead letter',
    });
    receiver.status = 204;
    const arrives = await send('order.made');
    await waitFor(async () => (await listed(ask, path, '?status=delivered')).length === 1, {
      what: 'the delivery',
    });

    expect((await resend(waits)).body).toEqual({ messageId: waits, status: 'pending' });
    expect((await resend(dies)).body).toEqual({ messageId: dies, status: 'dead' });
    expect((await resend(arrives)).body).toEqual({ messageId: arrives, status: 'delivered' });
    const times = (id: string) => receiver.ids.filter((each) => each === id).length;
    await waitFor(() => [waits, dies, arrives].every((id) => times(id) === 2), {
      what: 'each message to arrive twice',
    });
    await untilPlaces(db, name, { waiting: 0, leased: 0, dead: 0 });
    expect((await listed(ask, path)).map(({ attempts }) => attempts.length)).toEqual([2, 2, 2]);
  });

  it('W5 a message that is elsewhere, of another tenant, or being sent is not sent again', async () => {
    const { ask, receiver, name, path } = await setUp('held');
    const elsewhere = await sendOne(db, { topic: 'other.topic', tenantId: 'held' });
    const others = await sendOne(db, { topic: 'order.made', tenantId: 'globex' });
    for (const id of [elsewhere, others, '01a1de74-bca1-759a-ad30-c5d7fa53243b'])
      expect(await ask('POST', `${path}/messages/${id}/resend`)).toMatchObject({
        status: 404,
        body: { error: expect.stringContaining(`there is no message ${id} at ${name}`) as string },
      });
    let open: () => void = () => undefined;
    receiver.hold = new Promise((resolve) => (open = resolve));
    const id = await sendOne(db, { topic: 'order.made', tenantId: 'held' });
    await startEndpointRelay(db);
    await receiver.has(id);
    expect(await ask('POST', `${path}/messages/${id}/resend`)).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('is being sent') as string },
    });
    open();
    await untilEnded(db, name);
    expect(receiver.ids).toEqual([id]);
  });

  it('W5 M5 a replay sends those since a time again, and no others', async () => {
    const { ask, receiver, name, path } = await setUp('replaying');
    const before = await sendOne(db, { topic: 'order.made', tenantId: 'replaying' });
    // later than it even when it is cut to milliseconds
    const { rows } = await db.query<{ now: Date }>(
      'SELECT clock_timestamp() AS now FROM pg_sleep(0.002)',
    );
    const ids = [
      await sendOne(db, { topic: 'order.made', tenantId: 'replaying' }),
      await sendOne(db, { topic: 'order.paid', tenantId: 'replaying' }),
    ];
    await startEndpointRelay(db);
    await untilEnded(db, name);
    await sendOne(db, { topic: 'order.made', tenantId: 'globex' });
    const since = rows[0]?.now.toISOString();
    const { body } = await ask('POST', `${path}/replay`, { since });
    expect(body).toMatchObject({
      destination: name,
      filter: { tenantId: 'replaying' },
      actor: expect.stringMatching(/^api:operate-/) as string,
    });
    await waitFor(() => receiver.requests.length === 5, { what: 'the replayed messages' });
    expect(receiver.ids.slice(3).toSorted()).toEqual(ids.toSorted());
    expect(receiver.ids.filter((id) => id === before)).toHaveLength(1);
    expect((await ask('POST', `${path}/replay`, {})).body).toEqual({
      error: 'since is missing: created at or after',
    });
  });

  it('W5 are counted in intervals', async () => {
    const { ask, name, path } = await setUp('counting');
    await db.query(
      `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
       SELECT date_bin('10 seconds', clock_timestamp() - age, 'epoch'), d.id, 3, 2, 1
         FROM ${db.quoted}.destinations d, unnest(ARRAY[interval '1 minute', '30 minutes', '2 days']) age
        WHERE d.name = $1`,
      [name],
    );
    await addEndpoint(db, { url: 'https://example.com', tenantId: 'counting', name: 'idle' });
    const { body } = await ask('GET', `${path}/statistics`);
    expect(body).toMatchObject({
      delivered: 6,
      failed: 6,
      retried: 4,
      died: 2,
      deliveryRate: 0.75,
      successRate: 0.5,
      stepSeconds: 60,
    });
    const points = body['points'] as { delivered: number; failed: number; died: number }[];
    expect(points.length).toBeGreaterThanOrEqual(60);
    expect(points.filter(({ delivered }) => delivered > 0)).toMatchObject([
      { delivered: 3, failed: 3, died: 1 },
      { delivered: 3, failed: 3, died: 1 },
    ]);
    expect((await ask('GET', `${path}/statistics?minutes=10080`)).body).toMatchObject({
      delivered: 9,
    });
    expect((await ask('GET', '/api/endpoints/idle/statistics')).body).toMatchObject({
      delivered: 0,
      deliveryRate: null,
    });
    expect((await ask('GET', `${path}/statistics?minutes=5`)).status).toBe(400);
  });
});

it('W5 a removed endpoint has no messages, statistics, tests or replays any more', async () => {
  const { ask, name, path } = await setUp('removed');
  const id = await sendOne(db, { topic: 'order.made', tenantId: 'removed' });
  await endpointsOf(db).remove(db.pool, { name });
  for (const [method, rest] of [
    ['GET', '/messages'],
    ['GET', '/statistics'],
    ['POST', '/test'],
    ['POST', `/messages/${id}/resend`],
  ] as const)
    expect((await ask(method, path + rest)).status).toBe(404);
  const since = new Date(0).toISOString();
  expect((await ask('POST', `${path}/replay`, { since })).status).toBe(404);
});
