// Endpoints over HTTP: what each route answers and changes, and that no answer holds a secret but those of a new one.
// Deliveries are tested in server-endpoints-messages.test.ts.

import { randomBytes } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { openEndpoint } from '../../src/features/endpoints/secrets.js';
import { parseSecretKeys } from '../../src/core/sealed-secret.js';
import { readEndpoint } from '../../src/features/endpoints/database.js';
import { addEndpoint, endpointsOf, setKey, testKey } from '../support/endpoints.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, sendOne } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';

const db = testDatabase();
const url = 'https://example.com/hooks';

async function client(scope: 'read' | 'operate' = 'operate', tenantId?: string): Promise<Ask> {
  setKey(testKey);
  return (await serveDatabase(db)).as(scope, tenantId);
}

function namesIn(body: Record<string, unknown>): string[] {
  return (body['endpoints'] as { name: string }[]).map(({ name }) => name);
}

/** All pages of a list. */
async function allNames(ask: Ask, query: string): Promise<string[]> {
  const names: string[] = [];
  for (let next: string | null = ''; next !== null;) {
    const more: string = next === '' ? '' : `&next=${next}`;
    const { body } = await ask('GET', `/api/endpoints?${query}${more}`);
    names.push(...namesIn(body));
    next = body['next'] as string | null;
  }
  return names;
}

async function lastActions(count: number): Promise<unknown[]> {
  const { rows } = await db.query(
    `SELECT action, actor, subject ->> 'endpoint' AS endpoint, subject ->> 'destination' AS destination
       FROM ${db.quoted}.operator_actions ORDER BY id DESC LIMIT $1`,
    [count],
  );
  return rows;
}

const byApi = expect.stringMatching(/^api:operate-/) as string;

describe('the list', () => {
  it('W5 has the newest endpoints first, page by page, without removed ones', async () => {
    const tenantId = 'paged';
    const names: string[] = [];
    for (let n = 0; n < 5; n += 1) names.push((await addEndpoint(db, { url, tenantId })).name);
    const removed = await addEndpoint(db, { url, tenantId });
    await endpointsOf(db).remove(db.pool, { name: removed.name });
    const ask = await client('read');
    const first = await ask('GET', '/api/endpoints?limit=2&tenantId=paged');
    expect(namesIn(first.body)).toEqual(names.slice(3).toReversed());
    expect(await allNames(ask, 'limit=2&tenantId=paged')).toEqual(names.toReversed());
    const all = await allNames(ask, 'limit=2');
    expect(all.filter((name) => names.includes(name))).toEqual(names.toReversed());
    expect(all).not.toContain(removed.name);
  });

  it('W5 is sorted by name, by what waits and by dead letters, page by page, also with a filter', async () => {
    const tenantId = 'sorted';
    const names: string[] = [];
    for (let n = 0; n < 5; n += 1)
      names.push((await addEndpoint(db, { url, topics: [`sorted.${n}`], tenantId })).name);
    const [calm = '', few = '', many = ''] = names;
    const removed = await addEndpoint(db, { url, topics: ['sorted.2'], tenantId });
    await endpointsOf(db).disable(db.pool, { name: calm });
    for (const topic of ['sorted.1', 'sorted.2', 'sorted.2'])
      await sendOne(db, { topic, tenantId });
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason)
       SELECT gen_random_uuid(), d.id, clock_timestamp(), 1, 1, 'rejected'
         FROM ${db.quoted}.destinations d, generate_series(1, CASE d.name WHEN $1 THEN 3 ELSE 1 END)
        WHERE d.name IN ($1, $2)`,
      [few, calm],
    );
    await endpointsOf(db).remove(db.pool, { name: removed.name });
    const byName = names.toSorted();
    const first = (...largest: string[]) => [
      ...largest,
      ...byName.filter((name) => !largest.includes(name)),
    ];
    const ask = await client('read');
    for (const [order, expected] of [
      ['name', byName],
      ['waiting', first(many, few)],
      ['dead', first(few, calm)],
    ] as const) {
      const query = `order=${order}&tenantId=sorted`;
      for (const limit of [1, 2, 5, 50])
        expect(await allNames(ask, `limit=${limit}&${query}`)).toEqual(expected);
      expect(await allNames(ask, `limit=2&${query}&state=enabled`)).toEqual(
        expected.filter((name) => name !== calm),
      );
      const all = await allNames(ask, `limit=2&order=${order}`);
      expect(all.filter((name) => names.includes(name))).toEqual(expected);
      expect(new Set(all).size).toBe(all.length);
      expect(all).not.toContain(removed.name);
      const mine = await client('read', tenantId);
      expect(await allNames(mine, `order=${order}`)).toEqual(expected);
    }
    expect(await ask('GET', '/api/endpoints?order=name&next=17')).toMatchObject({
      status: 400,
      body: { error: 'next is "17": pass next from the previous page' },
    });
  });

  it('W5 shows what an endpoint is, and how it does', async () => {
    const { name, fingerprint } = await addEndpoint(db, {
      url,
      topics: ['shown.*'],
      tenantId: 'shown',
      description: 'the first',
    });
    await sendOne(db, { topic: 'shown.one', tenantId: 'shown' });
    const ask = await client('read');
    const expected = {
      name,
      url,
      topics: ['shown.*'],
      tenantId: 'shown',
      namespace: null,
      description: 'the first',
      body: null,
      auth: null,
      filter: null,
      expireAfterMs: null,
      rate: null,
      concurrency: null,
      timeoutMs: null,
      labels: {},
      enabled: true,
      failing: false,
      failingSince: null,
      disabledBecause: null,
      fingerprints: [fingerprint],
      waiting: 1,
      dead: 0,
      createdAt: expect.stringMatching(/^\d{4}-.*Z$/) as string,
      changedAt: expect.stringMatching(/^\d{4}-.*Z$/) as string,
    };
    const { body } = await ask('GET', '/api/endpoints?tenantId=shown');
    expect(body).toEqual({ endpoints: [expected], next: null });
    expect((await ask('GET', `/api/endpoints/${name}`)).body).toEqual(expected);
  });

  it('W5 is filtered by state: failing ones have failed at last', async () => {
    const tenantId = 'stated';
    const add = (name: string) => addEndpoint(db, { url, tenantId, name, topics: [name] });
    for (const name of ['well', 'off', 'fails']) await add(name);
    await endpointsOf(db).disable(db.pool, { name: 'off' });
    await db.query(
      `INSERT INTO ${db.quoted}.endpoint_failures (destination_id, failing_since)
       SELECT d.id, clock_timestamp() FROM ${db.quoted}.destinations d WHERE d.name IN ('off', 'fails')`,
    );
    const ask = await client('read');
    const inState = async (state: string) => allNames(ask, `tenantId=${tenantId}&state=${state}`);
    expect(await inState('disabled')).toEqual(['off']);
    expect(await inState('failing')).toEqual(['fails']);
    expect(await inState('enabled')).toEqual(['fails', 'well']);
  });

  it('W5 is searched by the beginning of a name or an address', async () => {
    const add = (name: string, address: string) =>
      addEndpoint(db, { name, url: address, tenantId: 'searched' });
    await add('find-me', 'https://one.example/a_b');
    await add('find_me', 'https://one.example/axb');
    await add('lost', 'https://find-me.example/');
    const ask = await client('read');
    for (const tenant of ['', '&tenantId=searched']) {
      const found = (text: string) => allNames(ask, `search=${encodeURIComponent(text)}${tenant}`);
      expect(await found('find-')).toEqual(['find-me']);
      expect(await found('https://one.example/')).toEqual(['find_me', 'find-me']);
      expect(await found('https://one.example/a_')).toEqual(['find-me']);
      expect(await found('%')).toEqual([]);
      expect(await found('me')).toEqual([]);
    }
    expect(await allNames(ask, 'search=find&tenantId=other')).toEqual([]);
  });

  it.each([
    ['limit=0', 'limit is "0": give a whole number from 1 to 500'],
    ['state=lost', 'state is "lost": give enabled, disabled, failing'],
    ['next=x', 'next is "x": pass next from the previous page'],
    ['next=9999999999', 'next is "9999999999": pass next from the previous page'],
    ['colour=red', 'colour is not a parameter here: use tenantId, state, search'],
  ])('W5 %s is refused with the reason', async (query, words) => {
    const { status, body } = await (await client('read'))('GET', `/api/endpoints?${query}`);
    expect(status).toBe(400);
    expect(body['error']).toContain(words);
  });
});

describe('a new endpoint', () => {
  it('W5 is answered with its secret, once, and recorded with the actor', async () => {
    const ask = await client();
    const headers = { authorization: 'Bearer sehr-geheim' };
    const made = await ask('POST', '/api/endpoints', {
      url,
      topics: ['user.*'],
      tenantId: 'acme',
      name: 'made',
      description: 'for the shop',
      headers,
    });
    expect(made.status).toBe(200);
    expect(made.body).toEqual({
      name: 'made',
      secret: expect.stringMatching(/^whsec_/) as string,
      fingerprint: expect.stringMatching(/^[0-9a-f]{12}$/) as string,
    });
    expect(made.headers.get('cache-control')).toBe('no-store');
    expect(await lastActions(1)).toMatchObject([
      { action: 'add_endpoint', actor: byApi, endpoint: 'made' },
    ]);
    const row = await readEndpoint(openDatabase(db), 'made');
    if (row === undefined) throw new Error('not there');
    expect(openEndpoint(parseSecretKeys(testKey) ?? [], row)).toEqual({
      secrets: [made.body['secret']],
      headers,
      query: {},
    });
    const read = [
      await ask('GET', '/api/endpoints'),
      await ask('GET', '/api/endpoints/made'),
      await ask('PATCH', '/api/endpoints/made', { description: 'changed' }),
      await ask('POST', '/api/endpoints/made/disable', { reason: 'a test' }),
      await ask('POST', '/api/endpoints/made/enable'),
      await ask('GET', '/api/audit'),
    ];
    for (const { status, body } of read) {
      expect(status).toBe(200);
      expect(JSON.stringify(body)).not.toMatch(/sealed:|whsec_|sehr-geheim|"secrets?"|"headers"/);
    }
  });

  it('W5 can bring its own secret', async () => {
    const secret = `whsec_${randomBytes(24).toString('base64')}`;
    const ask = await client();
    const made = await ask('POST', '/api/endpoints', {
      url,
      topics: ['*'],
      tenantId: null,
      secret,
    });
    expect(made.body).toMatchObject({ secret });
    expect((await ask('GET', `/api/endpoints/${String(made.body['name'])}`)).body).toMatchObject({
      tenantId: null,
      fingerprints: [made.body['fingerprint']],
    });
  });

  it('W5 needs a name that is not taken', async () => {
    const ask = await client();
    const endpoint = { url, topics: ['*'], tenantId: null, name: 'taken' };
    expect((await ask('POST', '/api/endpoints', endpoint)).status).toBe(200);
    expect(await ask('POST', '/api/endpoints', endpoint)).toMatchObject({
      status: 409,
      body: { error: 'the name "taken" is taken: choose another' },
    });
    const queue = await makeQueue(db);
    expect((await ask('POST', '/api/endpoints', { ...endpoint, name: queue.name })).status).toBe(
      409,
    );
    expect((await ask('DELETE', '/api/endpoints/taken')).status).toBe(200);
    expect(await ask('POST', '/api/endpoints', endpoint)).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('by an endpoint that was removed') as string },
    });
  });

  it('W5 is refused when its tenant has as many as it may', async () => {
    const most = (count: number) =>
      db.query(`UPDATE ${db.quoted}.endpoint_settings SET max_per_tenant = $1`, [count]);
    const ask = await client();
    const endpoint = { url, topics: ['*'], tenantId: 'full' };
    expect((await ask('POST', '/api/endpoints', endpoint)).status).toBe(200);
    await most(1);
    const refused = await ask('POST', '/api/endpoints', endpoint);
    await most(100);
    expect(refused).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('tenant "full" has 1 endpoints') as string },
    });
  });

  it.each([
    ['no address', { url: undefined }, 'url is missing: the address'],
    ['no topics', { topics: undefined }, 'topics is missing: topics'],
    ['no tenant', { tenantId: undefined }, 'endpoint.tenantId is undefined: give a tenant id'],
    ['a wrong address', { url: 'ftp://x' }, 'endpoint.url is'],
    ['a number as an address', { url: 7 }, 'endpoint.url is'],
    ['a private address', { url: 'http://127.0.0.1/' }, 'endpoint.url is'],
    ['a wrong topic', { topics: ['a b'] }, 'endpoint.topics[0] is "a b"'],
    ['a text as topics', { topics: '*' }, 'endpoint.topics is "*"'],
    ['a wrong name', { name: 'a b' }, 'endpoint.name is "a b"'],
    ['a wrong shape', { body: 'xml' }, 'endpoint.body is "xml"'],
    ['a wrong header', { headers: { 'webhook-id': 'x' } }, 'headers.webhook-id'],
    ['a short secret', { secret: 'whsec_c2hvcnQ=' }, 'the base64 of 24 to 64 bytes'],
    ['an unknown field', { colour: 'red' }, 'colour is not a parameter here: use url, topics'],
    ['a null character', { description: 'a\0b' }, 'unsupported Unicode escape'],
  ])('W5 with %s is refused with the field and the remedy', async (_what, wrong, words) => {
    const ask = await client();
    const endpoint = { url, topics: ['*'], tenantId: 'acme', ...wrong };
    const { status, body } = await ask('POST', '/api/endpoints', endpoint);
    expect([status, body['error']]).toEqual([400, expect.stringContaining(words)]);
  });

  it('W5 may be in a network that the configuration allows', async () => {
    setKey(testKey);
    const config = { endpoints: { allowedNetworks: ['127.0.0.0/8'] } };
    const ask = await (await serveDatabase(db, { config })).as('operate');
    const endpoint = { url: 'http://127.0.0.1/', topics: ['*'], tenantId: 'acme' };
    expect((await ask('POST', '/api/endpoints', endpoint)).status).toBe(200);
  });

  it('W5 needs a key on the server, which is not the fault of the client', async () => {
    const { name } = await addEndpoint(db, { url, tenantId: 'acme' });
    setKey(null);
    const server = await serveDatabase(db);
    const ask = await server.as('operate');
    const endpoint = { url, topics: ['*'], tenantId: 'acme' };
    for (const [method, path, body] of [
      ['POST', '/api/endpoints', endpoint],
      ['POST', `/api/endpoints/${name}/rotate`, {}],
      ['PATCH', `/api/endpoints/${name}`, { headers: { a: 'b' } }],
    ] as const)
      expect(await ask(method, path, body)).toMatchObject({
        status: 503,
        body: {
          error: expect.stringContaining('cannot seal secrets: WAYBILL_SECRET_KEY') as string,
        },
      });
    // an unknown endpoint is the fault of the client
    for (const [method, path] of [
      ['POST', '/api/endpoints/unknown/rotate'],
      ['PATCH', '/api/endpoints/unknown'],
    ] as const) {
      const body = method === 'PATCH' ? { headers: { a: 'b' } } : {};
      expect((await ask(method, path, body)).status).toBe(404);
    }
    const customer = await server.as('operate', 'acme');
    expect((await customer('POST', '/api/endpoints', endpoint)).body).toEqual({
      error: 'the server cannot seal secrets',
    });
    expect((await ask('PATCH', `/api/endpoints/${name}`, { description: 'd' })).status).toBe(200);
  });
});

describe('changes', () => {
  it('W5 apply to the given fields, and answer the endpoint', async () => {
    const { name } = await addEndpoint(db, {
      url,
      topics: ['a'],
      tenantId: 'acme',
      namespace: 'shop',
      description: 'old',
    });
    const ask = await client();
    const path = `/api/endpoints/${name}`;
    const changed = await ask('PATCH', path, { topics: ['b', 'c.*'], namespace: null });
    expect(changed.body).toMatchObject({
      topics: ['b', 'c.*'],
      namespace: null,
      description: 'old',
      url,
    });
    expect(await lastActions(1)).toMatchObject([
      { action: 'change_endpoint', actor: byApi, endpoint: name },
    ]);
    expect(await ask('PATCH', path, {})).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining('nothing to change: give url, topics') as string },
    });
    expect(await ask('PATCH', path, { tenantId: 'other' })).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining('tenantId is not a parameter here') as string },
    });
    expect((await ask('PATCH', path, { url: 'http://10.0.0.1/' })).status).toBe(400);
  });

  it('W5 a secret is rotated, the old ones are retired, at most five sign', async () => {
    const first = await addEndpoint(db, { url });
    const ask = await client();
    const path = `/api/endpoints/${first.name}`;
    const second = await ask('POST', `${path}/rotate`, {});
    expect(second.body).toMatchObject({
      name: first.name,
      secret: expect.stringMatching(/^whsec_/) as string,
    });
    const { body } = await ask('GET', path);
    expect(body['fingerprints']).toEqual([second.body['fingerprint'], first.fingerprint]);
    for (let n = 0; n < 3; n += 1) await ask('POST', `${path}/rotate`, {});
    expect(await ask('POST', `${path}/rotate`, {})).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining('at most 5 sign at once') as string },
    });
    expect((await ask('POST', `${path}/retire`)).body).toEqual({ retired: 4 });
    expect(await lastActions(1)).toMatchObject([
      { action: 'retire_endpoint_secrets', actor: byApi, endpoint: first.name },
    ]);
  });

  it('W5 an endpoint is disabled with a reason, enabled, and removed', async () => {
    const { name } = await addEndpoint(db, { url, topics: ['onoff'] });
    await sendOne(db, { topic: 'onoff' });
    const ask = await client();
    const path = `/api/endpoints/${name}`;
    const disabled = await ask('POST', `${path}/disable`, { reason: 'asked by the customer' });
    expect(disabled.body).toMatchObject({
      enabled: false,
      disabledBecause: 'asked by the customer',
      waiting: 1,
    });
    expect((await ask('POST', `${path}/enable`)).body).toMatchObject({
      enabled: true,
      disabledBecause: null,
    });
    expect(await lastActions(2)).toMatchObject([
      { actor: byApi, destination: name },
      { actor: byApi, destination: name },
    ]);
    expect((await ask('DELETE', path)).body).toEqual({ name, waiting: true });
    expect(await lastActions(1)).toMatchObject([{ action: 'remove_endpoint', actor: byApi }]);
    expect((await ask('GET', path)).status).toBe(404);
    expect(await ask('DELETE', path)).toMatchObject({
      status: 404,
      body: { error: expect.stringContaining(`endpoint "${name}" does not exist`) as string },
    });
  });
});
