// The live tail over HTTP: each client gets every event once, and only those it may see.

import { expect, it } from 'vitest';

import { tailRoutes } from '../../src/server/api/tail.js';
import type { RouteRequest } from '../../src/server/route.js';
import type { Access } from '../../src/server/access.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

type Event = { event: string; messageId: string; tenantId: string | null };

/** A client that follows: returns what is new, as the kind and the message. */
async function follow(ask: Ask, query = ''): Promise<() => Promise<string[]>> {
  const { status, body } = await ask('GET', `/api/tail?${query}`);
  expect([status, body]).toMatchObject([200, { events: [], more: 0 }]);
  return async () => {
    const answer = await ask('GET', `/api/tail/${String(body['tail'])}`);
    expect(answer.status).toBe(200);
    return (answer.body['events'] as Event[]).map(
      ({ event, messageId }) => `${event} ${messageId}`,
    );
  };
}

it('W5 a client gets what happened since its last request, each event once, by its filters', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  const server = await serveDatabase(db);
  const ask = await server.as('read');
  const all = await follow(ask, `destination=${queue.name}`);
  const dead = await follow(ask, 'event=dead');
  const elsewhere = await follow(ask, 'topic=other.*');
  expect(await all()).toEqual([]);
  const id = await queue.enqueueOne();
  expect(await all()).toEqual([`enqueued ${id}`]);
  const claim = await queue.claim({ limit: 2 });
  await settle(db, claim, [{ id, outcome: 'reject', errorCode: 'no' }]);
  expect(await all()).toEqual([`dead ${id}`]);
  expect(await all()).toEqual([]);
  expect(await dead()).toEqual([`dead ${id}`]);
  expect(await elsewhere()).toEqual([]);
});

it('W5 a token of one tenant follows that tenant only, and no other client', async () => {
  const queue = await makeQueue(db);
  const server = await serveDatabase(db);
  const [acme, globex] = [await server.as('read', 'acme'), await server.as('read', 'globex')];
  const { body } = await acme('GET', '/api/tail');
  const path = `/api/tail/${String(body['tail'])}`;
  await queue.enqueue(1, { tenantId: 'globex' });
  const id = await queue.enqueueOne({ tenantId: 'acme' });
  expect((await globex('GET', path)).status).toBe(404);
  const { events } = (await acme('GET', path)).body as { events: Event[] };
  expect(events.map(({ messageId }) => messageId)).toEqual([id]);
});

it('W5 the number of followers is limited, and one that does not ask is forgotten', async () => {
  const access: Access = { name: 'test', scope: 'read', tenantId: null, forEndpoints: false };
  const of = (values: Record<string, unknown>) =>
    ({ database: openDatabase(db), access, values }) as unknown as RouteRequest;
  const [full] = tailRoutes({ atMost: 2 });
  const begun = await Promise.allSettled([1, 2, 3].map(() => full.answer(of({}))));
  expect(begun.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected']);
  await expect(full.answer(of({}))).rejects.toMatchObject({
    status: 429,
    message: 'clients follow 2 times already: close another live tail, or try again in 5 seconds',
  });
  const [wide] = tailRoutes();
  for (let each = 0; each < 10; each += 1) await wide.answer(of({}));
  await expect(wide.answer(of({}))).rejects.toMatchObject({
    status: 429,
    message: 'you follow 10 times already: close another live tail, or try again in 5 seconds',
  });
  const other = { ...of({}), access: { ...access, tenantId: 'acme' } };
  await wide.answer(other);
  // a page that was closed does not say so
  const [impatient, lookOn] = tailRoutes({ silentMs: -1 });
  const tails = [];
  for (let each = 0; each < 10; each += 1)
    tails.push(((await impatient.answer(of({}))) as { tail: string }).tail);
  const { tail: eleventh } = (await impatient.answer(of({}))) as { tail: string };
  await lookOn.answer(of({ tail: eleventh }));
  await expect(lookOn.answer(of({ tail: tails[0] }))).rejects.toMatchObject({ status: 404 });
  // tenants cannot keep the others out
  const [shared] = tailRoutes();
  const ofTenant = (tenantId: string) => ({ ...of({}), access: { ...access, tenantId } });
  for (let each = 0; each < 20; each += 1)
    await shared.answer(ofTenant(each < 10 ? 'acme' : 'globex'));
  await expect(shared.answer(ofTenant('initech'))).rejects.toMatchObject({
    status: 429,
    message: 'tenants follow 20 times already: close another live tail, or try again in 5 seconds',
  });
  await shared.answer(of({}));
  const [quick, look] = tailRoutes({ atMost: 1, forgottenMs: -1 });
  const { tail } = (await quick.answer(of({}))) as { tail: string };
  await expect(look.answer(of({ tail }))).rejects.toMatchObject({ status: 404 });
  await quick.answer(of({}));
});
