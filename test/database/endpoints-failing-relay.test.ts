// A failing endpoint with a relay and a real receiver: the application gets the messages through its routes, and what
// failed arrives after the recovery.

import { expect, it } from 'vitest';

import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { delivered } from '../../src/core/outcome.js';
import { handler } from '../../src/destinations/handler.js';
import {
  addEndpoint,
  endpointSettings,
  endpointsOf,
  startEndpointRelay,
  startReceiver,
} from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, untilEnded, untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

it('W2 an endpoint that has only failed is disabled; the application is told, and a recovery resends', async () => {
  const told: { topic: string; payload: unknown }[] = [];
  const relay = await startEndpointRelay(db, {
    destinations: {
      operations: handler((message: ClaimedMessage) => {
        told.push({ topic: message.topic, payload: message.payload });
        return delivered();
      }),
    },
    routes: [{ topic: 'waybill.endpoint.*', to: 'operations' }],
    endpoints: { ...endpointSettings, retry: { delaysMs: [1] } },
  });
  const receiver = await startReceiver();
  receiver.status = 500;
  const { name } = await addEndpoint(db, { url: receiver.url, topics: ['order.paid'] });
  const first = await sendOne(db, { topic: 'order.paid' });
  await untilPlaces(db, name, { dead: 1, waiting: 0, leased: 0 });
  await db.query(
    `UPDATE ${db.quoted}.endpoint_failures SET failing_since = failing_since - interval '120 hours'`,
  );
  const second = await sendOne(db, { topic: 'order.paid' });
  await relay.event('destination_paused', ({ destination }) => destination === name);
  await waitFor(() => told.length > 0, { what: 'the message', timeoutMs: 20_000 });
  expect(told).toMatchObject([
    {
      topic: 'waybill.endpoint.disabled',
      payload: {
        endpoint: name,
        tenantId: null,
        error: { code: 'http_status', remoteCode: '500' },
      },
    },
  ]);
  receiver.status = 204;
  receiver.requests.length = 0;
  await endpointsOf(db).recover(db.pool, { name });
  await receiver.has(first);
  await receiver.has(second);
  await untilEnded(db, name);
  expect(told).toHaveLength(1);
  expect(await endpointsOf(db).list(db.pool, { name })).toMatchObject([
    { enabled: true, failingSince: null, dead: 0 },
  ]);
});
