// Requests to endpoints: signed with every secret that is not retired, in the format of each endpoint, and to public
// addresses only, unless the relay's settings allow more.

import { randomBytes } from 'node:crypto';

import { Webhook } from 'standardwebhooks';
import { describe, expect, it } from 'vitest';

import {
  addEndpoint,
  endpointsOf,
  startEndpointRelay,
  startReceiver,
} from '../support/endpoints.js';
import type { Received } from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, places, sendOne, untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const endpoints = endpointsOf(db);

function verifies(secret: string, { body, headers }: Received): boolean {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>);
    return true;
  } catch {
    return false;
  }
}

describe('signatures', () => {
  it('W2 an old and a new secret both sign until the old one is retired, while the relay runs', async () => {
    const receiver = await startReceiver();
    const relay = await startEndpointRelay(db);
    const own = `whsec_${randomBytes(24).toString('base64')}`;
    const first = await addEndpoint(db, { url: receiver.url, topics: ['signed'], secret: own });
    const which = { name: first.name };
    const deliver = async () => receiver.has(await sendOne(db, { topic: 'signed', payload: 1 }));
    const changed = async (count: number) =>
      waitFor(
        () => relay.of('endpoints_changed').filter((each) => each.changed > 0).length >= count,
        {
          what: `change ${count}`,
        },
      );
    const stranger = `whsec_${randomBytes(32).toString('base64')}`;
    const before = await deliver();
    expect([own, stranger].map((secret) => verifies(secret, before))).toEqual([true, false]);
    const second = await endpoints.rotate(db.pool, which);
    await changed(1);
    const during = await deliver();
    expect([own, second.secret].map((secret) => verifies(secret, during))).toEqual([true, true]);
    await endpoints.retireOldSecrets(db.pool, which);
    await changed(2);
    const after = await deliver();
    expect([own, second.secret].map((secret) => verifies(secret, after))).toEqual([false, true]);
  });

  it('W2 each endpoint has its configured body format', async () => {
    const receiver = await startReceiver();
    await startEndpointRelay(db);
    const { name } = await addEndpoint(db, {
      url: receiver.url,
      topics: ['shaped'],
      body: 'envelope',
    });
    const { body } = await receiver.has(await sendOne(db, { topic: 'shaped', payload: { a: 1 } }));
    expect(JSON.parse(body)).toMatchObject({ event: 'shaped', data: { a: 1 } });
    await endpoints.change(db.pool, { name }, { body: null });
    const plain = await waitFor(
      async () => {
        const sent = await receiver.has(await sendOne(db, { topic: 'shaped', payload: { a: 2 } }));
        return sent.body.includes('event') ? undefined : sent.body;
      },
      { what: 'the payload as it is' },
    );
    expect(JSON.parse(plain)).toEqual({ a: 2 });
  });
});

describe('allowed addresses', () => {
  it('an endpoint in a network that the relay does not allow waits, and the problem is reported', async () => {
    const receiver = await startReceiver();
    const { name } = await addEndpoint(db, { url: receiver.url, topics: ['inside'] });
    const relay = await startEndpointRelay(db, { endpoints: {} });
    await sendOne(db, { topic: 'inside' });
    const { problem } = await relay.event('endpoints_waiting', (each) =>
      each.problem.includes('127.0.0.1'),
    );
    expect(problem).toMatch(/endpoints are not served/);
    expect(await places(db, name)).toMatchObject({ waiting: 1, leased: 0 });
    expect(receiver.requests).toEqual([]);
    await endpoints.remove(db.pool, { name });
  });

  it('a name that resolves to an internal address is refused at each delivery, and nothing is sent', async () => {
    const receiver = await startReceiver();
    const url = receiver.url.replace('127.0.0.1', 'localhost');
    const { name } = await addEndpoint(db, { url, topics: ['named'] });
    await startEndpointRelay(db, { endpoints: { retry: { maxAttempts: 1 } } });
    const id = await sendOne(db, { topic: 'named' });
    const [attempt] = await waitFor(
      async () => {
        const attempts = await attemptsOf(db, id, name);
        return attempts.length > 0 ? attempts : undefined;
      },
      { what: 'an attempt', timeoutMs: 20_000 },
    );
    expect(attempt).toMatchObject({ error_code: 'target_refused' });
    expect(receiver.requests).toEqual([]);
  });
});

describe('a receiver that is gone', () => {
  it('W2 410 disables its endpoint: messages wait, and continue when it is enabled', async () => {
    const receiver = await startReceiver();
    await startEndpointRelay(db);
    receiver.status = 410;
    const { name } = await addEndpoint(db, { url: receiver.url, topics: ['gone'] });
    const id = await sendOne(db, { topic: 'gone' });
    await receiver.has(id);
    await waitFor(async () => (await endpoints.list(db.pool, { name }))[0]?.enabled === false, {
      what: 'the endpoint to be disabled',
      timeoutMs: 20_000,
    });
    const later = await sendOne(db, { topic: 'gone' });
    receiver.status = 204;
    await endpoints.enable(db.pool, { name });
    await receiver.has(later);
    await untilPlaces(db, name, { waiting: 0, leased: 0, delivered: 2, dead: 0 });
  });
});
