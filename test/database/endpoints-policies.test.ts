// Policies of one endpoint: rate limit, concurrency, timeout, query parameters, headers, body and labels. They are checked
// when they are set, and a running relay follows their changes.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { describe, expect, it, onTestFinished } from 'vitest';

import type { EndpointChanges } from '../../src/features/endpoints/description.js';
import { resolveEndpointOptions } from '../../src/features/endpoints/options.js';
import { resealed } from '../../src/features/endpoints/secrets.js';
import { parseSecretKeys } from '../../src/core/sealed-secret.js';
import { readEndpoint } from '../../src/features/endpoints/database.js';
import {
  addEndpoint,
  endpointSettings,
  endpointsOf,
  setKey,
  startEndpointRelay,
  startReceiver,
  testKey,
} from '../support/endpoints.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  numbered,
  openDatabase,
  send,
  sendOne,
  untilEnded,
  untilPlaces,
} from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const endpoints = endpointsOf(db);
const url = 'https://example.com';

const own = {
  filter: { amount: { gte: 100 } },
  expireAfterMs: 86_400_000,
  rate: { perSecond: 10, burst: 20 },
  concurrency: 2,
  timeoutMs: 5000,
  labels: { plan: 'gold', region: 'eu' },
};
const nothing = {
  filter: null,
  expireAfterMs: null,
  rate: null,
  concurrency: null,
  timeoutMs: null,
  labels: {},
};

describe('policies', () => {
  it('are stored, listed, changed and removed', async () => {
    const { name } = await addEndpoint(db, { url, ...own, query: { token: 'hidden' } });
    const which = { name };
    expect(only(await endpoints.list(db.pool, which))).toMatchObject(own);
    expect(JSON.stringify(await endpoints.list(db.pool, which))).not.toContain('hidden');
    await endpoints.change(db.pool, which, { description: 'other' });
    expect(only(await endpoints.list(db.pool, which))).toMatchObject(own);
    await endpoints.change(db.pool, which, {
      ...Object.fromEntries(Object.keys(own).map((field) => [field, null])),
      query: null,
    });
    expect(only(await endpoints.list(db.pool, which))).toMatchObject(nothing);
  });

  it.each<[EndpointChanges, string]>([
    [{ expireAfterMs: 999 }, 'expireAfterMs is 999: give a whole number from 1000 to 31536000000'],
    [{ rate: { perSecond: 0 } }, 'perSecond is 0: give a number from 0.001 to 1000000'],
    [{ rate: { perSecond: 1, burst: 0 } }, 'burst is 0: give a whole number from 1 to 1000000'],
    [{ rate: {} as never }, 'perSecond'],
    [{ concurrency: 0 }, 'concurrency is 0: give a whole number from 1 to'],
    [{ timeoutMs: 1.5 }, 'timeoutMs is 1.5: give a whole number from 1000 to'],
    [{ labels: { 'a b': 'x' } }, 'labels.a b is "x": give a name of letters'],
    [{ labels: { plan: 'a,b' } }, 'labels.plan is "a,b": give a name'],
    [{ labels: { plan: 1 as never } }, 'labels.plan is 1: give a name'],
    [{ labels: [] as never }, 'labels is []: give an object'],
  ])('%j are refused by the library and by the database', async (changes, problem) => {
    const { name } = await addEndpoint(db, { url });
    await expect(endpoints.change(db.pool, { name }, changes)).rejects.toThrow(problem);
    await expect(
      db.query(`SELECT ${db.quoted}.change_endpoint($1, $2)`, [name, JSON.stringify(changes)]),
    ).rejects.toMatchObject({ code: '22023' });
    expect(only(await endpoints.list(db.pool, { name }))).toMatchObject(nothing);
  });

  it.each([
    [{ host: 'x' }, 'headers.host'],
    [{ 'content-length': '1' }, 'headers.content-length'],
    [{ 'Webhook-Signature': 'x' }, 'headers.Webhook-Signature'],
    [{ 'ce-id': 'x' }, 'headers.ce-id'],
    [{ 'transfer-encoding': 'x' }, 'headers.transfer-encoding'],
  ])('headers that Waybill or HTTP sets are refused: %j', async (headers, field) => {
    await expect(addEndpoint(db, { url, headers })).rejects.toThrow(
      `endpoint.${field} is "…": use another header name: this one is reserved or malformed`,
    );
  });

  it.each([
    [{ query: { '': 'x' } }, 'give a name and a text'],
    [{ query: { token: 1 as never } }, 'endpoint.query.token is "…": give a name and a text'],
    [{ query: { token: 'x'.repeat(2048) } }, 'give at most 2048'],
  ])('query parameters that cannot be sent are refused: %j', async (fields, problem) => {
    await expect(addEndpoint(db, { url, ...fields })).rejects.toThrow(problem);
  });

  it('have bounds that the settings of the relays set; lower ones count for relays at once', async () => {
    const { name } = await addEndpoint(db, { url, concurrency: 20, timeoutMs: 60_000 });
    await expect(endpoints.change(db.pool, { name }, { concurrency: 21 })).rejects.toThrow(
      'concurrency is 21: give a whole number from 1 to 20',
    );
    await expect(endpoints.change(db.pool, { name }, { timeoutMs: 60_001 })).rejects.toThrow(
      'timeoutMs is 60001: give a whole number from 1000 to 60000',
    );
    await db.query(`UPDATE ${db.quoted}.endpoint_settings SET max_concurrency = 3`);
    // a change of something else is not refused because of it
    await endpoints.change(db.pool, { name }, { description: 'as before' });
    await db.query(`UPDATE ${db.quoted}.endpoint_settings SET max_concurrency = 20`);
    expect(resolveEndpointOptions({ maxConcurrency: 3 })).toMatchObject({ maxConcurrency: 3 });
    expect(() => resolveEndpointOptions({ warnAfterMs: 2000, disableAfterMs: 1000 })).toThrow(
      'endpoints.warnAfterMs is 2000: give less than endpoints.disableAfterMs, which is 1000',
    );
  });

  it('a sealed query is sealed again with a new key', async () => {
    const { name } = await addEndpoint(db, { url, query: { token: 'hidden' } });
    const row = await readEndpoint(openDatabase(db), name);
    const [old] = parseSecretKeys(testKey) ?? [];
    const [fresh] = parseSecretKeys(Buffer.alloc(32, 7).toString('base64')) ?? [];
    if (row === undefined || old === undefined || fresh === undefined) throw new Error('no row');
    expect(row.sealedQuery).not.toContain('hidden');
    const parts = resealed([fresh, old], row);
    expect(parts?.sealedQuery).toMatch(/^sealed:1:/);
    expect(parts?.sealedQuery).not.toBe(row.sealedQuery);
    expect(resealed([old], row)).toBeNull();
  });
});

describe('labels', () => {
  it('find endpoints in the library, the view and the API, alone and with a tenant', async () => {
    const tenantId = `t-${randomUUID()}`;
    const add = async (labels: Record<string, string>) =>
      (await addEndpoint(db, { url, tenantId, labels })).name;
    const [gold, goldUs] = [
      await add({ plan: 'gold', 'region.x': 'eu' }),
      await add({ plan: 'gold', 'region.x': 'us' }),
    ];
    await add({ plan: 'free' });
    const named = async (labels: Record<string, string>) =>
      (await endpoints.list(db.pool, { tenantId, labels })).map(({ name }) => name);
    expect((await named({ plan: 'gold' })).toSorted()).toEqual([gold, goldUs].toSorted());
    expect(await named({ plan: 'gold', 'region.x': 'us' })).toEqual([goldUs]);
    setKey(testKey);
    const server = await serveDatabase(db);
    for (const [ask, query] of [
      [await server.as('read'), ''],
      [await server.as('read'), `&tenantId=${tenantId}`],
      [await server.as('read', tenantId), ''],
    ] as const) {
      const { status, body } = await ask(
        'GET',
        `/api/endpoints?labels=plan:gold,region.x:us${query}`,
      );
      expect([status, body['endpoints']]).toMatchObject([200, [{ name: goldUs }]]);
    }
    const refused = await (await server.as('read'))('GET', '/api/endpoints?labels=gold');
    expect(refused.status).toBe(400);
  });
});

describe('over HTTP', () => {
  it('an endpoint is added with policies, changed, and recovered; refusals name the field', async () => {
    setKey(testKey);
    const ask = await (await serveDatabase(db)).as('operate');
    const name = `ep-${randomUUID()}`;
    const added = await ask('POST', '/api/endpoints', {
      name,
      url,
      topics: ['*'],
      tenantId: null,
      query: { token: 'hidden' },
      ...own,
    });
    expect(added.status, JSON.stringify(added.body)).toBe(200);
    const path = `/api/endpoints/${name}`;
    const shown = await ask('GET', path);
    expect(shown.body).toMatchObject({ ...own, failingSince: null });
    expect(JSON.stringify(shown.body)).not.toContain('hidden');
    const changed = await ask('PATCH', path, { labels: null, rate: null, timeoutMs: 2000 });
    expect(changed.body).toMatchObject({ ...own, labels: {}, rate: null, timeoutMs: 2000 });
    const refused = await ask('PATCH', path, { filter: { amount: { above: 1 } } });
    expect([refused.status, JSON.stringify(refused.body)]).toEqual([
      400,
      expect.stringContaining('filter.amount.above is not an operator: use in, exists') as string,
    ]);
    const early = await ask('POST', `${path}/recover`, {});
    expect([early.status, JSON.stringify(early.body)]).toEqual([
      400,
      expect.stringContaining('has not failed since its last success: give since') as string,
    ]);
    await endpoints.disable(db.pool, { name });
    const since = '2026-01-01T00:00:00.000Z';
    const recovered = await ask('POST', `${path}/recover`, { since });
    expect(recovered.body).toMatchObject({ resent: 0 });
    expect((await ask('GET', path)).body).toMatchObject({ enabled: true });
  });
});

describe('a relay', () => {
  it('keeps to the rate limit of one endpoint, and follows its changes', async () => {
    await startEndpointRelay(db);
    const receiver = await startReceiver();
    const topic = `limited.${randomUUID()}`;
    const { name } = await addEndpoint(db, {
      url: receiver.url,
      topics: [topic],
      rate: { perSecond: 0.001, burst: 1 },
    });
    await send(db, numbered(topic, 3));
    await untilPlaces(db, name, { delivered: 1 });
    // another endpoint is not limited
    const other = await startReceiver();
    await addEndpoint(db, { url: other.url, topics: ['unlimited'] });
    await other.has(await sendOne(db, { topic: 'unlimited' }));
    expect(receiver.requests).toHaveLength(1);
    await endpoints.change(db.pool, { name }, { rate: null });
    await untilEnded(db, name);
    expect(receiver.requests).toHaveLength(3);
  });

  it('ends a call after the timeout of its endpoint', async () => {
    await startEndpointRelay(db);
    const receiver = await startReceiver();
    receiver.hold = new Promise(() => {});
    const topic = `slow.${randomUUID()}`;
    const { name } = await addEndpoint(db, { url: receiver.url, topics: [topic], timeoutMs: 1000 });
    const id = await sendOne(db, { topic });
    const [attempt] = await waitFor(
      async () => {
        const found = await attemptsOf(db, id, name);
        return found.length > 0 ? found : undefined;
      },
      { what: 'an attempt', timeoutMs: 20_000 },
    );
    expect(attempt).toMatchObject({
      error_code: 'timeout',
      error_message: 'no answer within 1000 ms',
    });
  });

  it('has at most as many calls in flight as an endpoint allows', async () => {
    let [inFlight, most] = [0, 0];
    const server = createServer((request, response) => {
      inFlight += 1;
      most = Math.max(most, inFlight);
      request.resume();
      setTimeout(() => {
        inFlight -= 1;
        response.writeHead(204).end();
      }, 20);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    await startEndpointRelay(db, { endpoints: { ...endpointSettings, concurrency: 5 } });
    const reached = async (concurrency: number | undefined): Promise<number> => {
      const topic = `busy.${randomUUID()}`;
      const { name } = await addEndpoint(db, {
        url: address,
        topics: [topic],
        ...(concurrency && { concurrency }),
      });
      most = 0;
      await send(db, numbered(topic, 40));
      await untilEnded(db, name);
      return most;
    };
    expect(await reached(1)).toBe(1);
    expect(await reached(undefined)).toBe(5);
    expect(await reached(10)).toBeGreaterThan(5);
  });

  it('adds the query parameters to the address, and keeps the query that it has', async () => {
    await startEndpointRelay(db);
    const receiver = await startReceiver();
    const topic = `asked.${randomUUID()}`;
    const { name } = await addEndpoint(db, {
      url: `${receiver.url}/hooks?v=a%20b`,
      topics: [topic],
      query: { token: 'x y&z', für: 'ä' },
    });
    const first = await receiver.has(await sendOne(db, { topic }));
    expect(first.path).toBe('/hooks?v=a%20b&token=x+y%26z&f%C3%BCr=%C3%A4');
    await endpoints.change(db.pool, { name }, { query: null, body: 'envelope' });
    const second = await waitFor(
      async () => {
        const request = await receiver.has(await sendOne(db, { topic, payload: { n: 1 } }));
        return request.path === '/hooks?v=a%20b' ? request : undefined;
      },
      { what: 'the new address', timeoutMs: 20_000 },
    );
    expect(JSON.parse(second.body)).toMatchObject({ event: topic, data: { n: 1 } });
  });
});
