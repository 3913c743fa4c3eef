// Endpoints while relays run: added, changed, disabled, enabled and removed; without the key; and three hundred of them
// at once.

import { randomBytes } from 'node:crypto';

import { describe, expect, it, onTestFinished, vi } from 'vitest';

import { Database } from '../../src/database/connection.js';
import { readHealth } from '../../src/listing/reports.js';
import { handler } from '../../src/destinations/handler.js';
import {
  addEndpoint,
  endpointSettings,
  endpointsOf,
  setKey,
  startEndpointRelay,
  startReceiver,
  testKey,
} from '../support/endpoints.js';
import { misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  makeRelay,
  openDatabase,
  waitLimitMs,
  places,
  send,
  sendOne,
  startRelay,
  untilEnded,
  untilPlaces,
} from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const endpoints = endpointsOf(db);

describe('while a relay runs', () => {
  it('W2 an added endpoint is served, and gets what it subscribed to', async () => {
    const relay = await startEndpointRelay(db);
    const receiver = await startReceiver();
    const headers = { authorization: 'Bearer x' };
    const { name } = await addEndpoint(db, {
      url: `${receiver.url}/hooks?v=1`,
      topics: ['added'],
      tenantId: 'acme',
      headers,
    });
    const id = await sendOne(db, { topic: 'added', tenantId: 'acme', payload: { n: 1 } });
    await sendOne(db, { topic: 'added', tenantId: 'other' });
    expect(await receiver.has(id)).toMatchObject({ path: '/hooks?v=1', headers });
    await untilEnded(db, name);
    expect(receiver.ids).toEqual([id]);
    expect(relay.of('endpoints_changed')).toContainEqual(
      expect.objectContaining({ opened: 1, closed: 0 }),
    );
  });

  it('one that is added without a notification is found by the poll', async () => {
    await startEndpointRelay(db);
    const receiver = await startReceiver();
    await db.inTransaction(async (client) => {
      await client.query(`SET LOCAL waybill.notify = 'off'`);
      await endpoints.add(client, { url: receiver.url, topics: ['silent'], tenantId: null });
    });
    await receiver.has(await sendOne(db, { topic: 'silent' }));
  });

  it('a change that commits after newer ones is not missed', async () => {
    const relay = await startEndpointRelay(db);
    const receiver = await startReceiver();
    const late = await db.connect();
    await late.query('BEGIN');
    await late.query(`SET LOCAL waybill.notify = 'off'`);
    await endpoints.add(late, { url: receiver.url, topics: ['late'], tenantId: null });
    const { name } = await addEndpoint(db, { url: receiver.url, topics: ['early'] });
    await receiver.has(await sendOne(db, { topic: 'early' }));
    await endpoints.change(db.pool, { name }, { description: 'newer' });
    await relay.event('endpoints_changed', ({ changed }) => changed > 0);
    await late.query('COMMIT');
    await late.end();
    await receiver.has(await sendOne(db, { topic: 'late' }));
  });

  it('a disabled endpoint keeps its messages visible, and gets them when it is enabled', async () => {
    await startEndpointRelay(db);
    const receiver = await startReceiver();
    const { name } = await addEndpoint(db, { url: receiver.url, topics: ['switched'] });
    await receiver.has(await sendOne(db, { topic: 'switched' }));
    await untilEnded(db, name);
    await endpoints.disable(db.pool, { name });
    const waiting = await send(db, [{ topic: 'switched' }, { topic: 'switched' }]);
    // another endpoint's message is delivered: the relay has polled
    const other = await startReceiver();
    await addEndpoint(db, { url: other.url, topics: ['passes.by'] });
    await other.has(await sendOne(db, { topic: 'passes.by' }));
    expect(await places(db, name)).toMatchObject({ waiting: 2, leased: 0 });
    expect(await endpoints.list(db.pool, { name })).toMatchObject([{ enabled: false, waiting: 2 }]);
    const health = await readHealth(openDatabase(db));
    expect(health.find(({ metric }) => metric === 'endpoints_disabled')?.value).toBe(1);
    await endpoints.enable(db.pool, { name });
    for (const id of waiting) await receiver.has(id);
    await untilEnded(db, name);
  });

  it('a new address takes over while deliveries are in flight: none is lost, none is sent twice', async () => {
    const relay = await startEndpointRelay(db);
    const [before, after] = [await startReceiver(), await startReceiver()];
    let letGo = () => {};
    before.hold = new Promise((resolve) => (letGo = resolve));
    const { name } = await addEndpoint(db, { url: before.url, topics: ['moved'] });
    const held = await send(db, [{ topic: 'moved' }, { topic: 'moved' }]);
    for (const id of held) await before.has(id);
    await endpoints.change(db.pool, { name }, { url: after.url });
    await relay.event('endpoints_changed', ({ changed }) => changed === 1);
    const next = await send(db, [{ topic: 'moved' }, { topic: 'moved' }]);
    for (const id of next) await after.has(id);
    letGo();
    await untilPlaces(db, name, { waiting: 0, leased: 0, delivered: 4 });
    expect(before.ids.toSorted()).toEqual(held.toSorted());
    expect(after.ids.toSorted()).toEqual(next.toSorted());
  });

  it('a delivery that waits for a retry goes to the new address', async () => {
    await startEndpointRelay(db, {
      endpoints: { ...endpointSettings, retry: { delaysMs: [300] } },
    });
    const [before, after] = [await startReceiver(), await startReceiver()];
    before.status = 500;
    const { name } = await addEndpoint(db, { url: before.url, topics: ['mended'] });
    const id = await sendOne(db, { topic: 'mended' });
    await before.has(id);
    await endpoints.change(db.pool, { name }, { url: after.url });
    await after.has(id);
    await untilEnded(db, name);
    expect(await attemptsOf(db, id, name)).toMatchObject([
      { state: 'retryable', remote_code: '500' },
      { state: 'dispatched' },
    ]);
  });

  it('a removed endpoint stops cleanly: calls in flight end, pending deliveries stay', async () => {
    const relay = await startEndpointRelay(db, {
      endpoints: { ...endpointSettings, concurrency: 1 },
    });
    const receiver = await startReceiver();
    let letGo = () => {};
    receiver.hold = new Promise((resolve) => (letGo = resolve));
    const { name } = await addEndpoint(db, { url: receiver.url, topics: ['ended'] });
    const ids = await send(db, [{ topic: 'ended' }, { topic: 'ended' }, { topic: 'ended' }]);
    await waitFor(() => receiver.requests.length === 1, { what: 'the first' });
    await endpoints.remove(db.pool, { name });
    await relay.event('endpoints_changed', ({ closed }) => closed === 1);
    letGo();
    await untilPlaces(db, name, { leased: 0, delivered: 1, waiting: 2 });
    await sendOne(db, { topic: 'ended' });
    expect(receiver.ids).toEqual([ids.find((id) => id === receiver.ids[0])]);
    const unheard = async () =>
      (
        await db.query(
          `SELECT FROM ${db.quoted}.listeners b JOIN ${db.quoted}.destinations d ON d.id = b.destination_id WHERE d.name = $1`,
          [name],
        )
      ).rowCount === 0;
    await waitFor(unheard, { what: 'no relay to listen for it', timeoutMs: 3000 });
    expect(await misplaced(db)).toEqual([]);
  });

  it('the settings of the configuration apply to every endpoint, old and new', async () => {
    const old = await addEndpoint(db, { url: 'https://example.com', topics: ['settings'] });
    await startEndpointRelay(db, {
      endpoints: {
        ...endpointSettings,
        retry: { maxAttempts: 3, baseMs: 10, maxMs: 20 },
        whenDead: 'block',
      },
    });
    const fresh = await addEndpoint(db, { url: 'https://example.com', topics: ['settings'] });
    const { rows } = await db.query(
      `SELECT max_attempts, retry_base_ms::int, retry_max_ms::int, retry_delays_ms, when_dead FROM ${db.quoted}.destinations WHERE name = ANY ($1)`,
      [[old.name, fresh.name]],
    );
    const same = {
      max_attempts: 3,
      retry_base_ms: 10,
      retry_max_ms: 20,
      retry_delays_ms: null,
      when_dead: 'block',
    };
    expect(rows).toEqual([same, same]);
  });
});

describe('without the right key', () => {
  it.each([
    ['none', null, /WAYBILL_SECRET_KEY is not set/],
    ['another one', randomBytes(32).toString('base64'), /sealed with the key [0-9a-f]{8}/],
  ])(
    '(%s) deliveries wait, the reason is reported everywhere, and the rest continues',
    async (_what, key, words) => {
      const receiver = await startReceiver();
      const { name } = await addEndpoint(db, { url: receiver.url, topics: ['sealed'] });
      const arrived: string[] = [];
      const relay = await startEndpointRelay(db, {
        key,
        destinations: { beside: handler(({ id }) => void arrived.push(id)) },
        routes: [{ topic: 'sealed', to: 'beside' }],
      });
      const id = await sendOne(db, { topic: 'sealed' });
      await waitFor(() => arrived.includes(id), { what: 'the other destination' });
      expect((await relay.event('endpoints_waiting')).problem).toMatch(words);
      expect(await places(db, name)).toMatchObject({ waiting: 1, leased: 0 });
      const database = openDatabase(db);
      const alarm = await waitFor(
        async () =>
          (await readHealth(database)).find(({ metric }) => metric === 'relay_problems')?.alarm,
        { what: 'the alarm', timeoutMs: waitLimitMs },
      );
      expect(alarm).toMatch(words);
      await relay.stop();
      setKey(testKey);
      const { relay: draining } = makeRelay(db, { destinations: {}, endpoints: endpointSettings });
      expect(await draining.drain({ maxMs: 20_000, maxMessages: 100 })).toMatchObject({
        finished: true,
      });
      expect(receiver.ids).toContain(id);
      await endpoints.remove(db.pool, { name });
    },
  );

  it('an endpoint whose secret was encrypted with another key waits, and no other does', async () => {
    const receiver = await startReceiver();
    const other = endpointsOf(db, randomBytes(32).toString('base64'));
    const { name } = await other.add(db.pool, {
      url: receiver.url,
      topics: ['foreign'],
      tenantId: null,
    });
    const mine = await addEndpoint(db, { url: receiver.url, topics: ['native'] });
    const relay = await startEndpointRelay(db);
    await receiver.has(await sendOne(db, { topic: 'native' }));
    const id = await sendOne(db, { topic: 'foreign' });
    expect((await relay.event('endpoints_waiting')).problem).toContain(name);
    // a new secret alone does not help: the old one signs too
    await endpoints.rotate(db.pool, { name });
    await endpoints.retireOldSecrets(db.pool, { name });
    await receiver.has(id);
    expect(await untilEnded(db, mine.name)).toMatchObject({ delivered: 1 });
  });
});

describe('relays that do not serve endpoints', () => {
  it('leave them to others', async () => {
    const receiver = await startReceiver();
    const { name } = await addEndpoint(db, { url: receiver.url, topics: ['left'] });
    const arrived: string[] = [];
    await startRelay(db, { destinations: { left: handler(({ id }) => void arrived.push(id)) } });
    const id = await sendOne(db, { topic: 'left' });
    await waitFor(() => arrived.includes(id), { what: 'the destination of the configuration' });
    expect(await places(db, name)).toMatchObject({ waiting: 1 });
    await startEndpointRelay(db);
    await receiver.has(id);
  });
});

describe('many endpoints', () => {
  it('three hundred are served, each with its own messages, while the relay is otherwise idle', async () => {
    const receiver = await startReceiver();
    const tenants = Array.from({ length: 300 }, (_, n) => `tenant-${n}`);
    const relay = await startEndpointRelay(db);
    await db.inTransaction(async (client) => {
      for (const tenantId of tenants)
        await endpoints.add(client, {
          url: `${receiver.url}/${tenantId}`,
          topics: ['many.*'],
          tenantId,
        });
    });
    await relay.event('endpoints_changed', ({ opened }) => opened >= 300);
    const ids = await send(
      db,
      tenants.map((tenantId) => ({ topic: 'many.things', tenantId })),
    );
    await waitFor(() => receiver.requests.length >= 300, { what: 'all', timeoutMs: waitLimitMs });
    const byId = new Map(receiver.requests.map((request) => [request.id, request.path]));
    expect(ids.map((id) => byId.get(id))).toEqual(tenants.map((tenantId) => `/${tenantId}`));
    expect(receiver.requests).toHaveLength(300);
  });

  it('while idle, hundreds of them cost a relay a few queries a second', async () => {
    const query = vi.spyOn(Database.prototype, 'queryTexts');
    const others = vi.spyOn(Database.prototype, 'query');
    onTestFinished(() => {
      query.mockRestore();
      others.mockRestore();
    });
    const asked = () => [...query.mock.calls, ...others.mock.calls].map(([what]) => what);
    const looks = () => asked().filter((what) => what === 'look for endpoints').length;
    const claims = () => asked().filter((what) => what === 'claim').length;
    await startEndpointRelay(db);
    const { rows: served } = await db.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM ${db.quoted}.endpoints WHERE removed_at IS NULL`,
    );
    expect(served[0]?.count).toBeGreaterThan(300);
    await waitFor(() => looks() >= 1, { what: 'the first look' });
    // endpoints without work are not polled separately
    expect(claims()).toBeLessThan(50);
    query.mockClear();
    others.mockClear();
    // every 10 seconds
    await waitFor(() => looks() >= 2, { what: 'two more looks', timeoutMs: 2 * waitLimitMs });
    expect(asked()).toContain('look for work');
    expect(asked().length, asked().join()).toBeLessThan(30);
    expect(claims()).toBe(0);
  });
});
