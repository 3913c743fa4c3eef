// Several databases in one process: each is served independently, and a failure of one does not affect the others.

import type { ServerResponse } from 'node:http';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import path from 'node:path';

import { describe, expect, it, onTestFinished } from 'vitest';

import { createRelay, resolveShards } from '../../src/config.js';
import { handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { MessageRefusedError } from '../../src/core/errors.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { createDrainHandler } from '../../src/server/drain-handler.js';
import { startReceiver } from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { loopback, serve } from '../support/relay-partner.js';
import { makeRelay, numbered, places, send, untilPlaces } from '../support/relay.js';
import { makeShardedRelay, produce, shardsOf, wireTo } from '../support/shards.js';
import { waitFor } from '../support/wait.js';

const [eu, us, ap] = [testDatabase(), testDatabase(), testDatabase()];
const all = { eu, us, ap };
const two = { eu, us };
const alertSecret = `whsec_${Buffer.from('a secret of the tests, long enough').toString('base64')}`;

describe('one process', () => {
  it('N9 delivers every message of every shard once, and each key in order, with producers that use the map', async () => {
    const shards = shardsOf(all, { default: 'ap', tenants: { acme: 'us' } });
    const received: ClaimedMessage[] = [];
    const config = {
      shards,
      destinations: { orders: handler((message) => void received.push(message)) },
    };
    await makeShardedRelay(config).relay.start();
    const tenants = ['acme', ...Array.from({ length: 11 }, (_, index) => `tenant-${index}`)];
    const rounds = 5;
    for (let round = 1; round <= rounds; round += 1) {
      const messages = tenants.flatMap((tenantId) => [
        { topic: 'orders', tenantId, payload: { round } },
        { topic: 'orders', tenantId, key: 'one', payload: { round } },
        { topic: 'orders', tenantId, key: 'other', payload: { round } },
      ]);
      await produce(all, shards, [...messages, { topic: 'orders', payload: { round } }]);
    }
    const perRound = (name: string) =>
      3 * tenants.filter((tenant) => shards.shardOf(tenant) === name).length +
      (name === 'ap' ? 1 : 0);
    for (const [name, db] of Object.entries(all)) {
      expect(perRound(name), 'each has something to do').toBeGreaterThan(1);
      const delivered = rounds * perRound(name);
      await untilPlaces(db, 'orders', { delivered, waiting: 0, leased: 0, dead: 0 });
    }
    expect(new Set(received.map(({ id }) => id)).size).toBe(received.length);
    expect(received).toHaveLength(rounds * (3 * tenants.length + 1));
    const streams = new Map<string, ClaimedMessage[]>();
    for (const message of received.filter(({ key }) => key !== null)) {
      const stream = `${message.tenantId}/${message.key}`;
      streams.set(stream, [...(streams.get(stream) ?? []), message]);
    }
    expect(streams.size).toBe(2 * tenants.length);
    for (const [stream, messages] of streams)
      expect(
        messages.map(({ payload }) => (payload as { round: number }).round),
        stream,
      ).toEqual([1, 2, 3, 4, 5]);
    const { rows } = await us.query(
      `SELECT DISTINCT tenant_id FROM ${us.quoted}.messages WHERE tenant_id = 'acme'`,
    );
    expect(rows, 'listed in the map').toHaveLength(1);
  });

  it('N9 serves only the given shards', async () => {
    const config = { shards: shardsOf(two), destinations: { chosen: handler(() => undefined) } };
    const both = makeShardedRelay(config);
    await both.relay.start();
    await both.relay.stop();
    const { relay } = makeShardedRelay({ ...config, only: ['us'] });
    await relay.start();
    expect(relay.names).toEqual(['us']);
    await send(eu, numbered('chosen', 2));
    await send(us, numbered('chosen', 2));
    await untilPlaces(us, 'chosen', { delivered: 2 });
    expect(await places(eu, 'chosen')).toMatchObject({ waiting: 2, delivered: 0 });
    expect(() => makeShardedRelay({ ...config, only: ['mars'] })).toThrow(
      'the shard is "mars": give eu, us',
    );
  });

  it('N9 a rate limit applies to all shards together', async () => {
    const calls: string[] = [];
    const destinations = {
      limited: handler((message) => void calls.push(message.id), {
        rate: { perSecond: 0.001, burst: 10 },
      }),
      unlimited: handler(() => undefined),
    };
    await makeShardedRelay({ shards: shardsOf(two), destinations }).relay.start();
    for (const db of [eu, us]) await send(db, numbered('limited', 12));
    await waitFor(() => calls.length >= 10, { what: 'what the burst allows' });
    for (const db of [eu, us]) {
      await send(db, numbered('unlimited', 5));
      await untilPlaces(db, 'unlimited', { delivered: 5 });
      expect(await places(db, 'limited')).toMatchObject({ delivered: 5 });
    }
    expect(calls).toHaveLength(10);
  });

  it('N9 a webhook has connections for the deliveries of every shard', async () => {
    const open: ServerResponse[] = [];
    const { url } = await serve((_request, response) => void open.push(response));
    const destinations = { hooked: webhook({ url, concurrency: 2, allowedNetworks: loopback }) };
    await makeShardedRelay({ shards: shardsOf(two), destinations }).relay.start();
    for (const db of [eu, us]) await send(db, numbered('hooked', 2));
    await waitFor(() => open.length === 4, { what: 'four requests at once' });
    for (const response of open) response.end();
    for (const db of [eu, us]) await untilPlaces(db, 'hooked', { delivered: 2, leased: 0 });
  });

  it('N9 N14 an alert sent to a webhook has the name of its shard', async () => {
    const receiver = await startReceiver();
    const { relay } = makeShardedRelay({
      shards: shardsOf(two),
      destinations: {},
      alerts: {
        // there are 60 days of partitions
        thresholds: { partitions_ahead: 1000 },
        webhook: { url: receiver.url, secrets: alertSecret, allowedNetworks: loopback },
        checkMs: 100,
      },
    });
    await relay.start();
    const shards = () =>
      receiver.requests.map(
        ({ body }) => (JSON.parse(body) as { data: { shard?: string } }).data.shard,
      );
    await waitFor(() => receiver.requests.length >= 2, { what: 'two alerts' });
    expect(new Set(shards())).toEqual(new Set(['eu', 'us']));
  });

  it('C7 N9 a drain empties all of them, and reports for each what was done, or why not', async () => {
    const { proxy, url } = await wireTo(us);
    const config = {
      shards: shardsOf(two, { urls: { us: url } }),
      destinations: { drained: handler(() => undefined) },
    };
    const limits = { maxMs: 20_000, maxMessages: 1000 };
    await makeShardedRelay(config).relay.drain(limits);
    await send(eu, numbered('drained', 3));
    await send(us, numbered('drained', 4));
    const done = (processed: number) => ({
      processed,
      succeeded: processed,
      failed: 0,
      released: 0,
      finished: true,
      unrouted: 0,
      heldCursors: [],
    });
    expect(await makeShardedRelay(config).relay.drain(limits)).toEqual({
      ...done(7),
      shards: { eu: done(3), us: done(4) },
    });
    await send(eu, numbered('no.route', 1));
    await send(us, numbered('no.route', 2));
    expect(await makeShardedRelay(config).relay.drain(limits)).toMatchObject({
      unrouted: 3,
      shards: { eu: { unrouted: 1 }, us: { unrouted: 2 } },
    });
    for (const db of [eu, us]) await db.query(`SELECT ${db.quoted}.discard_unrouted()`);
    await send(eu, numbered('drained', 1));
    const token = 'long-enough-to-be-a-token';
    const routes = [{ topic: 'drained', to: 'drained' }];
    const answer = await createDrainHandler({ config: { ...config, routes }, token })(
      new Request('http://localhost/drain', {
        method: 'POST',
        headers: { authorization: `Bearer ${token}` },
      }),
    );
    expect(await answer.json()).toMatchObject({ processed: 1, shards: { eu: done(1) } });
    await proxy.leave();
    await send(eu, numbered('drained', 2));
    expect(await makeShardedRelay(config).relay.drain(limits)).toEqual({
      ...done(2),
      finished: false,
      shards: { eu: done(2), us: { error: expect.stringContaining('ECONNREFUSED') as string } },
    });
  });
});

describe('a shard that is away', () => {
  it('N9 at the start does not affect the others, is reported, and is served when it is there', async () => {
    const { proxy, url } = await wireTo(us);
    await proxy.leave();
    const shards = shardsOf(two, { urls: { us: url } });
    const { relay, event, events } = makeShardedRelay({
      shards,
      destinations: { later: handler(() => undefined) },
    });
    await relay.start();
    expect(await event('us', 'shard_unavailable')).toMatchObject({
      error: expect.stringContaining('ECONNREFUSED') as string,
    });
    expect([relay.isRunning('eu'), relay.isRunning('us')]).toEqual([true, false]);
    const names = events.filter(({ shard }) => shard === 'us').map((seen) => seen.event.name);
    expect(names, 'it never ran').not.toContain('relay_stopped');
    await send(eu, numbered('later', 3));
    await untilPlaces(eu, 'later', { delivered: 3 });
    await proxy.comeBack();
    await event('us', 'relay_started');
    await send(us, numbered('later', 3));
    await untilPlaces(us, 'later', { delivered: 3 });
    await waitFor(() => relay.isRunning('us'), { what: 'us to be running' });
  });

  it('N9 later does not affect the others, and pending deliveries are sent when it is back', async () => {
    const { proxy, url } = await wireTo(us);
    const { relay, event } = makeShardedRelay({
      shards: shardsOf(two, { urls: { us: url } }),
      destinations: { outage: handler(() => undefined) },
    });
    await relay.start();
    await send(us, numbered('outage', 1));
    await untilPlaces(us, 'outage', { delivered: 1 });
    await proxy.leave();
    await event('us', 'trouble');
    await send(us, numbered('outage', 5));
    await send(eu, numbered('outage', 5));
    await untilPlaces(eu, 'outage', { delivered: 5, waiting: 0, leased: 0 });
    expect(await places(us, 'outage')).toMatchObject({ delivered: 1 });
    await proxy.comeBack();
    await untilPlaces(us, 'outage', { delivered: 6, waiting: 0, leased: 0 });
  });

  it('N9 a database that refuses connections for a while is served again', async () => {
    const { relay, event } = makeShardedRelay({
      shards: shardsOf(two),
      destinations: { closed: handler(() => undefined) },
    });
    await relay.start();
    const { rows } = await eu.query<{ name: string }>(
      `SELECT datname AS name FROM pg_database WHERE datname = $1`,
      [new URL(us.url).pathname.slice(1)],
    );
    const name = rows[0]?.name ?? '';
    await send(us, numbered('closed', 3));
    await untilPlaces(us, 'closed', { delivered: 3 });
    await eu.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
    await eu.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, [
      name,
    ]);
    await event('us', 'trouble');
    await send(eu, numbered('closed', 3));
    await untilPlaces(eu, 'closed', { delivered: 3 });
    await eu.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS true`);
    await send(us, numbered('closed', 3));
    await untilPlaces(us, 'closed', { delivered: 6, waiting: 0, leased: 0 });
  });

  it('N9 M12 a stop ends all within the deadline, also while one accepts connections and never answers', async () => {
    const silent = createServer(() => undefined).listen(0, '127.0.0.1');
    onTestFinished(() => void silent.close());
    await waitFor(() => silent.address(), { what: 'a port' });
    const { port } = silent.address() as AddressInfo;
    const { relay } = makeShardedRelay({
      shards: shardsOf(two, { urls: { us: `postgresql://unknown@127.0.0.1:${port}/none` } }),
      destinations: { stuck: handler(() => new Promise(() => undefined), { concurrency: 1 }) },
      relay: { stopDeadlineMs: 1500 },
    });
    const started = relay.start();
    await waitFor(() => relay.isRunning('eu'), { what: 'eu to be running' });
    await send(eu, numbered('stuck', 4));
    await untilPlaces(eu, 'stuck', { leased: 4 });
    const beforeMs = performance.now();
    await relay.stop();
    // the database is updated within the deadline, or a second later
    expect(performance.now() - beforeMs).toBeLessThan(4000);
    await started;
    expect(await places(eu, 'stuck')).toMatchObject({ waiting: 4, leased: 0 });
    expect(relay.isRunning('eu')).toBe(false);
  });
});

it('M12 a relay that is told to stop while it starts begins nothing more', async () => {
  const stopping = { now: (): void => undefined };
  const made = makeRelay(eu, {
    destinations: { hasty: { ...handler(() => undefined), open: () => stopping.now() } },
    relay: { listen: false },
  });
  stopping.now = () => void made.relay.stop();
  await expect(made.relay.start()).rejects.toThrow('the relay was stopped while it started');
  expect(made.of('relay_started')).toEqual([]);
});

describe('the producer', () => {
  it('N9 is refused messages of another shard; nothing is written, and its transaction continues', async () => {
    const shards = shardsOf(two, { tenants: { acme: 'us', globex: 'eu' } });
    const outbox = createOutbox({ schema: eu.schema, shard: { of: shards, name: 'eu' } });
    const topic = 'guarded';
    await eu.inTransaction(async (client) => {
      const wrong = outbox.enqueueMany(client, [
        { topic, tenantId: 'globex' },
        { topic, tenantId: 'acme' },
      ]);
      await expect(wrong).rejects.toThrow(MessageRefusedError);
      await expect(wrong).rejects.toThrow(
        'tenantId "acme" belongs to the shard us, and this outbox writes to eu: open the transaction in the database of us',
      );
      await expect(outbox.enqueue(client, { topic })).rejects.toThrow('there is no tenant');
      await outbox.enqueue(client, { topic, tenantId: 'globex' });
    });
    const { rows } = await eu.query(
      `SELECT tenant_id FROM ${eu.quoted}.messages WHERE topic = 'guarded'`,
    );
    expect(rows).toEqual([{ tenant_id: 'globex' }]);
  });

  it('N9 in another language finds the same shard with one line of SQL', async () => {
    const names = ['ap', 'eu', 'us'];
    const shards = shardsOf(all);
    const tenants = Array.from({ length: 200 }, (_, index) => `Zoë-${index}`);
    const { rows } = await eu.query<{ shard: string }>(
      `SELECT (SELECT s FROM unnest($2::text[]) s ORDER BY sha256(convert_to(s || '/' || t, 'UTF8')) DESC LIMIT 1) AS shard
         FROM unnest($1::text[]) WITH ORDINALITY AS given (t, place) ORDER BY place`,
      [tenants, names],
    );
    expect(rows.map(({ shard }) => shard)).toEqual(tenants.map((name) => shards.shardOf(name)));
  });
});

describe('a configuration', () => {
  const destinations = { any: handler(() => undefined) };
  const routes = [{ topic: 'any', to: 'any' }];

  it.each([
    [
      'a database beside shards',
      { database: { url: 'postgresql://localhost/x' } },
      'config.database is given, and config.shards too: leave one of them out',
    ],
    [
      'one server login for all shards',
      { server: { databaseUrl: 'postgresql://localhost/x' } },
      'config.server.databaseUrl is given, and config.shards too: give each shard its serverUrl',
    ],
    [
      'one file for the heads of all shards',
      { audit: { seal: true, heads: { file: 'heads.jsonl' } } },
      'config.audit.heads.file has no {shard} in it',
    ],
  ])('N9 with %s is refused', (_what, more, words) => {
    expect(() => makeShardedRelay({ shards: shardsOf(two), destinations, ...more })).toThrow(words);
  });

  it('N9 has a target for the heads of each shard', () => {
    const heads = { file: 'heads-{shard}.jsonl', webhook: 'https://audit.example/{shard}' };
    const setups = resolveShards({
      shards: shardsOf(two),
      destinations,
      routes,
      audit: { seal: true, heads },
    });
    const kept = setups.map(({ setup }) => [
      path.basename(setup.audit.heads.file ?? ''),
      setup.audit.heads.webhook,
    ]);
    expect(kept).toEqual([
      ['heads-eu.jsonl', 'https://audit.example/eu'],
      ['heads-us.jsonl', 'https://audit.example/us'],
    ]);
  });

  it('N9 of shards makes no relay for one database, and the reverse', () => {
    expect(() => createRelay({ shards: shardsOf(two), destinations, routes })).toThrow(
      'use createShardedRelay, or config.database',
    );
    expect(() => makeShardedRelay({ destinations })).toThrow('config.shards is missing');
    const wrong = { names: 'eu' } as unknown as ReturnType<typeof shardsOf>;
    expect(() => makeShardedRelay({ shards: wrong, destinations })).toThrow(
      'config.shards is not a result of defineShards',
    );
  });
});
