// Delivery from the producer's transaction to each destination: what destinations receive, and when.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

import { describe, expect, it, onTestFinished } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { retry } from '../../src/core/outcome.js';
import { only } from '../support/only.js';
import { misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  numbered,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilEnded,
  untilPlaces,
} from '../support/relay.js';

const db = testDatabase();

const soon = { retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 } };

describe('what a destination receives', () => {
  it('M11 a committed message reaches the handler with all its fields', async () => {
    const received: ClaimedMessage[] = [];
    await startRelay(db, {
      destinations: { given: handler((message) => void received.push(message)) },
    });
    const id = await sendOne(db, {
      topic: 'given',
      payload: { user: 42, name: 'Zoë' },
      namespace: 'shop',
      tenantId: 'acme',
      key: 'user/42',
      dedupeKey: 'acme/42',
      aggregateType: 'user',
      aggregateId: '42',
      headers: { trace: 'abc' },
    });
    await untilEnded(db, 'given');
    const message = only(received);
    expect(message).toMatchObject({
      id,
      topic: 'given',
      tries: 1,
      claimNo: 1,
      namespace: 'shop',
      tenantId: 'acme',
      key: 'user/42',
      dedupeKey: 'acme/42',
      aggregateType: 'user',
      aggregateId: '42',
      headers: { trace: 'abc' },
      payload: { user: 42, name: 'Zoë' },
    });
    expect(Date.now() - message.createdAt.getTime()).toBeLessThan(60_000);
    expect(await attemptsOf(db, id, 'given')).toMatchObject([
      { state: 'dispatched', claim_no: 1, tries: 1, error_code: null },
    ]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M11 M1 a message of a transaction that rolled back is never delivered', async () => {
    const received: unknown[] = [];
    await startRelay(db, {
      destinations: { undone: handler((message) => void received.push(message.payload)) },
    });
    await db
      .inTransaction(async (client) => {
        await client.query(
          `SELECT ${db.quoted}.enqueue(topic => 'undone', payload => '"never"'::jsonb)`,
        );
        throw new Error('the application changed its mind');
      })
      .catch(() => undefined);
    await sendOne(db, { topic: 'undone', payload: 'kept' });
    await untilEnded(db, 'undone');
    expect(received).toEqual(['kept']);
  });

  it('M2 the payload is parsed once, and only when a handler reads it', async () => {
    const received: ClaimedMessage[] = [];
    await startRelay(db, {
      destinations: { lazy: handler((message) => void received.push(message)) },
    });
    await sendOne(db, { topic: 'lazy', payload: { deep: [1, 2, 3] } });
    await untilEnded(db, 'lazy');
    const message = only(received);
    expect(message.payloadText).toBe('{"deep": [1, 2, 3]}');
    expect(message.payload).toBe(message.payload);
  });

  it('M2 a webhook receives the payload byte for byte as the database prints it', async () => {
    const bodies: string[] = [];
    const server = createServer((request, response) => {
      void text(request).then((body) => {
        bodies.push(body);
        response.writeHead(204).end();
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    await startRelay(db, {
      destinations: {
        exact: webhook({ url: `http://127.0.0.1:${port}/hook`, allowedNetworks: ['127.0.0.0/8'] }),
      },
    });
    // numbers beyond double precision, trailing zeros and characters outside Latin 1
    const payload =
      '{"amount":12345678901234567890.10,"tiny":0.1234567890123456789,"text":"Zoë 🚚"}';
    await db.query(`SELECT ${db.quoted}.enqueue(topic => 'exact', payload => $1::text::jsonb)`, [
      payload,
    ]);
    await untilEnded(db, 'exact');
    const { rows } = await db.query<{ printed: string }>(
      'SELECT $1::text::jsonb::text AS printed',
      [payload],
    );
    expect(bodies).toEqual([only(rows).printed]);
    expect(bodies[0]).toContain('12345678901234567890.10');
  });
});

describe('fan-out', () => {
  it('M11 P11 one message goes to two destinations, each with its own retries and dead letters', async () => {
    const tries = { steady: 0, broken: 0 };
    await startRelay(db, {
      destinations: {
        steady: handler(() => {
          tries.steady += 1;
          return tries.steady === 1 ? retry({ code: 'once' }) : undefined;
        }, soon),
        broken: handler(() => {
          tries.broken += 1;
          return retry({ code: 'always' });
        }, soon),
      },
      routes: [
        { topic: 'both.*', to: 'steady' },
        { topic: 'both.happened', to: 'broken' },
        // a second route to the same destination makes no second delivery
        { topic: '*', to: 'steady' },
      ],
    });
    const id = await sendOne(db, { topic: 'both.happened' });
    await untilPlaces(db, 'steady', { waiting: 0, leased: 0, delivered: 1, dead: 0 });
    await untilPlaces(db, 'broken', { waiting: 0, leased: 0, delivered: 0, dead: 1 });
    expect(tries).toEqual({ steady: 2, broken: 3 });
    expect((await attemptsOf(db, id, 'steady')).map(({ state }) => state)).toEqual([
      'retryable',
      'dispatched',
    ]);
    expect((await attemptsOf(db, id, 'broken')).map(({ state }) => state)).toEqual([
      'retryable',
      'retryable',
      'failed',
    ]);
    expect(await misplaced(db)).toEqual([]);
  });
});

describe('events of the relay', () => {
  it('a listener that throws does not stop the deliveries', async () => {
    const received: string[] = [];
    const { createRelay } = await import('../../src/config.js');
    const relay = createRelay({
      database: { url: db.url, schema: db.schema },
      destinations: { watched: handler((message) => void received.push(message.id)) },
      routes: [{ topic: 'watched', to: 'watched' }],
      onEvent: () => {
        throw new Error('the listener is broken');
      },
    });
    onTestFinished(() => relay.stop().catch(() => undefined));
    await relay.start();
    const ids = await send(db, numbered('watched', 2));
    await untilCount(received, 2, 'deliveries');
    expect(received).toEqual(ids);
    await untilEnded(db, 'watched');
  });
});
