// /metrics as Prometheus reads it, with a working relay; and the statistics that relays report.

import { expect, it } from 'vitest';

import { readGauges } from '../../src/listing/reports.js';
import { handler } from '../../src/destinations/handler.js';
import { retry } from '../../src/core/outcome.js';
import { Metrics } from '../../src/telemetry/metrics.js';
import { addEndpoint } from '../support/endpoints.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, send, startRelay, untilPlaces } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();

it('P14 a relay is shown in the metrics, which need a token', async () => {
  const metrics = new Metrics();
  const server = await serveDatabase(db, { metrics });
  const relay = await startRelay(db, {
    destinations: {
      shop: handler(({ topic }) => (topic === 'shop.bad' ? retry({ code: 'no' }) : undefined), {
        retry: { delaysMs: [1] },
      }),
    },
    routes: [{ topic: 'shop.*', to: 'shop' }],
  });
  await send(db, [{ topic: 'shop.good' }, { topic: 'shop.good' }, { topic: 'shop.bad' }]);
  await untilPlaces(db, 'shop', { delivered: 2, dead: 1, waiting: 0, leased: 0 });
  await relay.stop();
  for (const event of relay.events) metrics.observe(event);
  expect((await server.with({})('GET', '/metrics')).status).toBe(401);
  const { status, body, headers } = await (await server.as('read'))('GET', '/metrics');
  expect(status).toBe(200);
  expect(headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  expect(body['text']).toContain('outbox_attempts_total{destination="shop",state="dispatched"} 2');
  expect(body['text']).toContain('outbox_attempts_total{destination="shop",state="retryable"} 1');
  expect(body['text']).toContain('outbox_attempts_total{destination="shop",state="failed"} 1');
  expect(body['text']).toContain('outbox_dlq_depth{destination="shop"} 1');
  expect(body['text']).toContain('outbox_pending_depth{destination="shop"} 0');
  expect(body['text']).toMatch(/outbox_dispatch_duration_seconds_count\{destination="shop"\} 4/);
});

it('P14 pending deliveries of endpoints are one sum, whatever their number', async () => {
  const names = ['customer-1', 'customer-2', 'customer-3'];
  for (const name of names)
    await addEndpoint(db, { name, url: 'https://example.com/hook', topics: ['customer.*'] });
  await db.query(`SELECT ${db.quoted}.set_paused('customer-2', true)`);
  await send(db, [{ topic: 'customer.new' }]);
  const { destinations, partitionsAhead } = await readGauges(openDatabase(db));
  const endpoints = destinations.filter(({ name }) => !/^[a-z]+$/.test(name));
  expect(endpoints).toMatchObject([{ name: '(endpoints)', pending: 3, paused: 1, unserved: 0 }]);
  expect(partitionsAhead).toBeGreaterThanOrEqual(59);
});

it('P14 W7 the work of a relay is in the statistics at the latest when it has stopped', async () => {
  const relay = await startRelay(db, {
    destinations: {
      counted: handler(
        ({ topic }) => (topic === 'counted.bad' ? retry({ code: 'no' }) : undefined),
        {
          retry: { delaysMs: [1, 1] },
        },
      ),
    },
    routes: [{ topic: 'counted.*', to: 'counted' }],
  });
  await send(db, [{ topic: 'counted.good' }, { topic: 'counted.bad' }]);
  await untilPlaces(db, 'counted', { delivered: 1, dead: 1, waiting: 0, leased: 0 });
  await relay.stop();
  const { rows } = await db.query(
    `SELECT sum(s.delivered)::int AS delivered, sum(s.retried)::int AS retried, sum(s.died)::int AS died
       FROM ${db.quoted}.statistics s JOIN ${db.quoted}.destinations d ON d.id = s.destination_id WHERE d.name = 'counted'`,
  );
  expect(only(rows)).toEqual({ delivered: 1, retried: 2, died: 1 });
});
