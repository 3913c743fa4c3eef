// What the HTTP API offers to the customer portal: the events to choose from, and a delivery with its request.

import { expect, it } from 'vitest';

import { events } from '../../examples/portal/events.js';
import { createTenantTokens } from '../../src/features/tokens/tenant-tokens.js';
import {
  addEndpoint,
  endpointSettings,
  setKey,
  startEndpointRelay,
  startReceiver,
  testKey,
} from '../support/endpoints.js';
import type { Receiver } from '../support/endpoints.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, untilEnded } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import type { TestServer } from '../support/server.js';

const db = testDatabase();
const tokens = createTenantTokens({ schema: db.schema });

async function asTenant(server: TestServer, tenantId: string) {
  const { token } = await tokens.add(db.pool, { tenantId });
  return server.with({ authorization: `Bearer ${token}` });
}

it('W5 events are listed for tenant tokens, limited to the topics of the portal', async () => {
  const server = await serveDatabase(db, {
    config: { events, server: { portal: { topics: ['order.*'] } } },
  });
  const ask = await asTenant(server, 'acme');
  expect((await ask('GET', '/api/events')).body).toEqual({
    events: [
      {
        topic: 'order.paid',
        description: 'The payment of an order has arrived.',
        example: { orderId: 'A-1042', amount: 129.5, currency: 'EUR' },
      },
      {
        topic: 'order.shipped',
        description: 'An order has left the warehouse.',
        example: { orderId: 'text', carrier: 'dhl', shippedAt: '2026-01-31T08:00:00.000Z' },
      },
    ],
  });
  expect((await server.with({})('GET', '/api/events')).status).toBe(401);
  const without = await asTenant(await serveDatabase(db), 'acme');
  expect((await without('GET', '/api/events')).body).toEqual({ events: [] });
});

type Shown = {
  method: string;
  url: string;
  headers: { name: string; value: string }[];
  body: string;
  bodyBytes: number;
  hasHiddenHeaders: boolean;
};

/** What differs on the wire, and is hidden or made at sending. */
function comparable(headers: Record<string, unknown>): Record<string, unknown> {
  const {
    host: _host,
    connection: _connection,
    'content-length': _length,
    'transfer-encoding': _encoding,
    'webhook-timestamp': _timestamp,
    'webhook-signature': _signature,
    'x-added': _added,
    ...others
  } = headers;
  return others;
}

it.each(['payload', 'envelope', 'cloudevents', 'cloudevents-structured'] as const)(
  'W5 the computed request is the one that was sent, as %s',
  async (body) => {
    const receiver: Receiver = await startReceiver();
    const tenantId = `sent-${body}`;
    const { name } = await addEndpoint(db, {
      url: `${receiver.url}/hooks?a=b`,
      tenantId,
      body,
      headers: { 'x-added': 'hidden-value' },
    });
    await startEndpointRelay(db);
    const id = await sendOne(db, {
      topic: 'order.paid',
      tenantId,
      key: 'k-1',
      aggregateType: 'order',
      aggregateId: '7',
      payload: { amount: 12.5, text: 'ü "quoted"' },
      headers: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
    });
    await untilEnded(db, name);
    const server = await serveDatabase(db, { config: { endpoints: endpointSettings } });
    const ask = await asTenant(server, tenantId);
    const answer = await ask('GET', `/api/endpoints/${name}/messages/${id}`);
    expect(answer.status, JSON.stringify(answer.body)).toBe(200);
    const { request, ...message } = answer.body as { request: Shown };
    expect(message).toMatchObject({
      messageId: id,
      status: 'delivered',
      attempts: [{ state: 'dispatched', remoteCode: '204' }],
    });
    const received = only(receiver.requests);
    expect(request).toMatchObject({
      method: 'POST',
      url: receiver.url + received.path,
      body: received.body,
      bodyBytes: Buffer.byteLength(received.body),
      hasHiddenHeaders: false,
    });
    const headers = Object.fromEntries(
      request.headers.map(({ name: header, value }) => [header, value]),
    );
    expect(comparable(headers)).toEqual(comparable(received.headers));
    expect(headers).toMatchObject({
      'webhook-signature': 'v1,[hidden]',
      'x-added': '[hidden]',
    });
    expect(
      Math.abs(
        Number(headers['webhook-timestamp']) - Number(received.headers['webhook-timestamp']),
      ),
    ).toBeLessThanOrEqual(5);
    expect(received.headers['x-added']).toBe('hidden-value');
    expect(JSON.stringify(answer.body)).not.toContain('hidden-value');
  },
);

it('W5 a server without the key shows the request, and says that headers are missing', async () => {
  setKey(testKey);
  const { name } = await addEndpoint(db, {
    url: 'https://example.com/',
    tenantId: 'keyless',
    headers: { 'x-added': 'v' },
  });
  const id = await sendOne(db, { topic: 'a.b', tenantId: 'keyless' });
  setKey(null);
  const ask = await asTenant(await serveDatabase(db), 'keyless');
  const { body } = await ask('GET', `/api/endpoints/${name}/messages/${id}`);
  const { request } = body as { request: Shown };
  expect(request.hasHiddenHeaders).toBe(true);
  expect(request.headers.map((header) => header.name)).not.toContain('x-added');
  expect(body).toMatchObject({ status: 'pending', attempts: [] });
});

it('W2 P13 a message of another tenant or endpoint does not exist', async () => {
  setKey(testKey);
  const url = 'https://example.com/';
  const own = await addEndpoint(db, { url, tenantId: 'acme', topics: ['order.*'] });
  const foreign = await addEndpoint(db, { url, tenantId: 'globex' });
  const elsewhere = await sendOne(db, { topic: 'stock.counted', tenantId: 'acme' });
  const theirs = await sendOne(db, { topic: 'order.paid', tenantId: 'globex' });
  const ask = await asTenant(await serveDatabase(db), 'acme');
  for (const [name, id] of [
    [own.name, elsewhere],
    [own.name, theirs],
    [foreign.name, theirs],
    [own.name, '01a1de74-bca1-759a-ad30-c5d7fa53243b'],
  ])
    expect((await ask('GET', `/api/endpoints/${name}/messages/${id}`)).status).toBe(404);
});

it('P13 where no authentication is needed, a token still limits what is seen', async () => {
  setKey(testKey);
  const url = 'https://example.com/';
  const { name } = await addEndpoint(db, { url, tenantId: 'local' });
  await addEndpoint(db, { url, tenantId: 'local-other' });
  const server = await serveDatabase(db, { authentication: 'none' });
  const ask = await asTenant(server, 'local');
  expect((await ask('GET', '/api/endpoints')).body).toMatchObject({ endpoints: [{ name }] });
  expect((await ask('GET', '/api/messages')).status).toBe(403);
  const wrong = server.with({ authorization: 'Bearer wbe_wrong' });
  expect((await wrong('GET', '/api/endpoints')).status).toBe(401);
  expect((await server.with({})('GET', '/api/messages')).status).toBe(200);
});
