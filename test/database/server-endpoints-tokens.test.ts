// Tenant tokens: they open the endpoints of one tenant for a short time, and nothing else. Behind the checks of the
// routes, the database hides what belongs to others: the same functions are called here without a tenant.

import { describe, expect, it } from 'vitest';

import { setPaused, sendTest } from '../../src/database/definitions.js';
import type { Database } from '../../src/database/connection.js';
import { changeDeadLetter } from '../../src/features/dead-letters/database.js';
import { createEndpoints } from '../../src/features/endpoints/endpoints.js';
import { listEndpoints, readListedEndpoint } from '../../src/features/endpoints/listing.js';
import { startReplay } from '../../src/features/replays/database.js';
import { createTenantTokens } from '../../src/features/tokens/tenant-tokens.js';
import type { NewTenantToken } from '../../src/features/tokens/tenant-tokens.js';
import { retryDeliveriesNow } from '../../src/listing/deliveries.js';
import { listMessages } from '../../src/listing/message-list.js';
import { readDestinationStatistics } from '../../src/listing/destination-statistics.js';
import { describedRoutes } from '../support/api-routes.js';
import { addEndpoint, setKey, testKey } from '../support/endpoints.js';
import { as } from '../support/logins.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, sendOne } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import type { Ask, TestServer } from '../support/server.js';

const db = testDatabase();
const url = 'https://example.com/hooks';
const tokens = createTenantTokens({ schema: db.schema });

async function holderOf(server: TestServer, given: NewTenantToken): Promise<Ask> {
  const operator = await server.as('operate');
  const { status, body } = await operator('POST', '/api/tenant-tokens', given);
  expect(status, JSON.stringify(body)).toBe(200);
  return server.with({ authorization: `Bearer ${String(body['token'])}` });
}

describe('a tenant token', () => {
  it('W2 P13 opens the endpoints of its tenant', async () => {
    setKey(testKey);
    const foreign = await addEndpoint(db, { url, tenantId: 'globex' });
    const ask = await holderOf(await serveDatabase(db), { tenantId: 'acme' });
    const made = await ask('POST', '/api/endpoints', { url, topics: ['*'] });
    expect(made.status).toBe(200);
    const own = String(made.body['name']);
    expect((await ask('GET', '/api/endpoints')).body).toMatchObject({
      endpoints: [{ name: own, tenantId: 'acme' }],
      next: null,
    });
    expect((await ask('PATCH', `/api/endpoints/${own}`, { description: 'd' })).status).toBe(200);
    expect((await ask('GET', `/api/endpoints/${foreign.name}`)).status).toBe(404);
    const { rows } = await db.query(
      `SELECT actor FROM ${db.quoted}.operator_actions WHERE action = 'change_endpoint'`,
    );
    expect(rows).toEqual([
      { actor: expect.stringMatching(/^api:tenant-[0-9a-f-]{36}$/) as string },
    ]);
  });

  it('W2 P13 is not given to a session that is limited to a tenant', async () => {
    await expect(
      db.query(
        `WITH limited AS MATERIALIZED (SELECT set_config('waybill.tenant_id', 'acme', true) AS tenant)
         SELECT t.name FROM limited, ${db.quoted}.add_tenant_token(tenant, sha256('x')) t`,
      ),
    ).rejects.toThrow('a session that is limited to a tenant cannot add tokens');
  });

  it('W2 P13 opens no other route, and no page', async () => {
    const server = await serveDatabase(db, {
      drain: () => Promise.reject(new Error('not for tenants')),
    });
    const ask = await holderOf(server, { tenantId: 'acme' });
    for (const { method, path } of describedRoutes()) {
      const asked = path
        .replace('{action}', 'retry')
        .replaceAll(/\{\w+\}/g, '01a1de74-bca1-759a-ad30-c5d7fa53243b');
      const { status } = await ask(method, asked, method === 'GET' ? undefined : {});
      const isOpen = /^\/api\/(events|endpoints)(\/|$)/.test(path);
      expect([path, status === 403]).toEqual([path, !isOpen]);
    }
    // it says nothing but what the token may do
    expect(await ask('GET', '/api/session')).toMatchObject({
      status: 200,
      body: { tenantId: 'acme', forEndpoints: true },
    });
    expect((await ask('GET', '/metrics')).status).toBe(403);
    expect((await ask('POST', '/drain')).status).toBe(403);
    const { token } = await tokens.add(db.pool, { tenantId: 'acme' });
    expect(await server.with({})('POST', '/api/session', { token })).toMatchObject({ status: 403 });
  });

  it('W2 P13 chooses no names: whether another tenant has one is not shown', async () => {
    setKey(testKey);
    await addEndpoint(db, { url, name: 'taken', tenantId: 'globex' });
    const server = await serveDatabase(db);
    const answers = [];
    for (const ask of [
      await holderOf(server, { tenantId: 'acme' }),
      await server.as('operate', 'acme'),
    ])
      for (const name of ['taken', 'free'])
        answers.push(await ask('POST', '/api/endpoints', { url, topics: ['*'], name }));
    expect(new Set(answers.map(({ status, body }) => JSON.stringify([status, body])))).toEqual(
      new Set([
        JSON.stringify([
          400,
          {
            error:
              'name is not for a token of one tenant: leave it out, and a name is generated; use description to tell endpoints apart',
          },
        ]),
      ]),
    );
  });

  it('W2 P13 follows a replay of its endpoint, and no other', async () => {
    const own = await addEndpoint(db, { url, tenantId: 'follower', topics: ['*'] });
    const foreign = await addEndpoint(db, { url, tenantId: 'globex', topics: ['*'] });
    const server = await serveDatabase(db);
    const ask = await holderOf(server, { tenantId: 'follower' });
    const operator = await server.as('operate');
    const since = new Date(Date.now() - 60_000).toISOString();
    const { body } = await ask('POST', `/api/endpoints/${own.name}/replay`, { since });
    const other = await operator('POST', `/api/endpoints/${foreign.name}/replay`, { since });
    const path = `/api/endpoints/${own.name}/replays`;
    const found = await ask('GET', `${path}/${String(body['id'])}`);
    expect(found).toMatchObject({ status: 200, body: { id: body['id'], destination: own.name } });
    expect(found.body).not.toHaveProperty('actor');
    expect((await ask('GET', `${path}/${String(other.body['id'])}`)).status).toBe(404);
    expect((await ask('GET', `${path}/999999`)).status).toBe(404);
    const elsewhere = `/api/endpoints/${foreign.name}/replays/${String(other.body['id'])}`;
    expect((await ask('GET', elsewhere)).status).toBe(404);
    expect((await operator('GET', elsewhere)).status).toBe(200);
  });

  it('W2 P13 has limits of tests and replays, which count over all tokens of the tenant', async () => {
    const { name } = await addEndpoint(db, { url, tenantId: 'busy', topics: ['*'] });
    const server = await serveDatabase(db);
    const holders = [
      await holderOf(server, { tenantId: 'busy' }),
      await holderOf(server, { tenantId: 'busy' }),
    ] as const;
    const statuses = async (path: string, count: number, body: object = {}) => {
      const found: number[] = [];
      for (let n = 0; n < count; n += 1)
        found.push((await (holders[n % 2] ?? holders[0])('POST', path, body)).status);
      return found;
    };
    const test = `/api/endpoints/${name}/test`;
    expect(await statuses(test, 61)).toEqual([...Array<number>(60).fill(200), 429]);
    const since = new Date(Date.now() - 60_000).toISOString();
    const replay = `/api/endpoints/${name}/replay`;
    expect(await statuses(replay, 11, { since })).toEqual([...Array<number>(10).fill(200), 429]);
    expect((await holders[0]('POST', replay, { since })).body['error']).toMatch(
      /^at most 10 requests of this kind \(replay\) are allowed in 01:00:00: wait until 20\S+Z$/,
    );
    await db.query(
      `INSERT INTO ${db.quoted}.tenant_limits (tenant_id, action, since, count)
       SELECT 'busy', a, clock_timestamp(), 599 FROM unnest(ARRAY['retry', 'retry of dead letters']) a`,
    );
    const waiting = await sendOne(db, { topic: 'order.paid', tenantId: 'busy' });
    const resend = `/api/endpoints/${name}/messages/${waiting}/resend`;
    expect(await statuses(resend, 2)).toEqual([200, 429]);
    const operator = await server.as('operate');
    expect((await operator('POST', test)).status).toBe(200);
    expect((await operator('POST', resend)).status).toBe(200);
    const others = await holderOf(server, { tenantId: 'calm' });
    const calm = await addEndpoint(db, { url, tenantId: 'calm' });
    expect((await others('POST', `/api/endpoints/${calm.name}/test`)).status).toBe(200);
    await db.query(
      `UPDATE ${db.quoted}.tenant_limits SET since = since - interval '1 minute' WHERE action = 'test'`,
    );
    expect(await statuses(test, 1)).toEqual([200]);
  });

  it('P13 has a tenant of at most 255 bytes, in TypeScript as in SQL', async () => {
    await expect(tokens.add(db.pool, { tenantId: 'ä'.repeat(128) })).rejects.toThrow(
      /^token\.tenantId is .*: give a tenant id of 1 to 255 bytes$/,
    );
    const { name } = await tokens.add(db.pool, { tenantId: `${'ä'.repeat(127)}a` });
    expect(name).toMatch(/^tenant-/);
  });

  it('P13 of the scope read changes nothing', async () => {
    const { name } = await addEndpoint(db, { url, tenantId: 'reader' });
    const ask = await holderOf(await serveDatabase(db), { tenantId: 'reader', scope: 'read' });
    expect((await ask('GET', `/api/endpoints/${name}`)).status).toBe(200);
    expect((await ask('DELETE', `/api/endpoints/${name}`)).status).toBe(403);
  });

  it('P13 ends at its time, by the clock of the database, and is deleted when others are made', async () => {
    const server = await serveDatabase(db);
    const ask = await holderOf(server, { tenantId: 'ending', lifetimeMs: 60_000 });
    expect((await ask('GET', '/api/endpoints')).status).toBe(200);
    await db.query(
      `UPDATE ${db.quoted}.tokens SET expires_at = clock_timestamp() WHERE tenant_id = 'ending'`,
    );
    expect((await ask('GET', '/api/endpoints')).status).toBe(401);
    const operator = await server.token('operate', 'ending');
    await db.query(
      `UPDATE ${db.quoted}.tokens SET expires_at = clock_timestamp() WHERE tenant_id = 'ending'`,
    );
    await tokens.add(db.pool, { tenantId: 'next' });
    const { rows } = await db.query(
      `SELECT for_endpoints FROM ${db.quoted}.tokens WHERE tenant_id = 'ending'`,
    );
    expect(operator).toMatch(/^wbt_/);
    // tokens that an administrator made stay in the list
    expect(rows).toEqual([{ for_endpoints: false }]);
  });

  it('W2 P13 is made by operators of all tenants only, and recorded without its secret', async () => {
    const server = await serveDatabase(db);
    for (const ask of [await server.as('read'), await server.as('operate', 'acme')])
      expect((await ask('POST', '/api/tenant-tokens', { tenantId: 'acme' })).status).toBe(403);
    const ask = await server.as('operate');
    const { body } = await ask('POST', '/api/tenant-tokens', { tenantId: 'acme', scope: 'read' });
    expect(body).toEqual({
      token: expect.stringMatching(/^wbe_/) as string,
      name: expect.stringMatching(/^tenant-/) as string,
      expiresAt: expect.stringMatching(/Z$/) as string,
    });
    const inMs = new Date(String(body['expiresAt'])).getTime() - Date.now();
    expect(inMs).toBeGreaterThan(3_500_000);
    expect(inMs).toBeLessThan(3_700_000);
    const { rows } = await db.query(
      `SELECT actor, subject FROM ${db.quoted}.operator_actions WHERE action = 'add_tenant_token' ORDER BY id DESC LIMIT 1`,
    );
    expect(rows).toEqual([
      {
        actor: expect.stringMatching(/^api:operate-/) as string,
        subject: { name: body['name'], scope: 'read', tenantId: 'acme' },
      },
    ]);
  });

  it.each([
    [{}, 'tenantId is missing: the tenant'],
    [{ tenantId: '' }, 'tenantId is "": give text'],
    [{ tenantId: 'a', scope: 'admin' }, 'scope is "admin": give operate, read'],
    [{ tenantId: 'a', lifetimeMs: 1 }, 'lifetimeMs is 1: give a whole number from 60000'],
    [{ tenantId: 'a', lifetimeMs: 86_400_001 }, 'lifetimeMs is 86400001'],
  ])('P13 with %j is refused with the reason', async (given, words) => {
    const ask = await (await serveDatabase(db)).as('operate');
    const { status, body } = await ask('POST', '/api/tenant-tokens', given);
    expect([status, body['error']]).toEqual([400, expect.stringContaining(words)]);
  });

  it('is part of the transaction that adds it, and SQL checks the same', async () => {
    await expect(tokens.add(db.pool, { tenantId: '' })).rejects.toThrow('token.tenantId is ""');
    await expect(tokens.add(db.pool, { tenantId: 'a', scope: 'admin' as 'read' })).rejects.toThrow(
      'token.scope is "admin"',
    );
    let token = '';
    await expect(
      db.inTransaction(async (client) => {
        ({ token } = await tokens.add(client, { tenantId: 'acme' }));
        throw new Error('rolled back');
      }),
    ).rejects.toThrow('rolled back');
    const ask = (await serveDatabase(db)).with({ authorization: `Bearer ${token}` });
    expect((await ask('GET', '/api/endpoints')).status).toBe(401);
    await as(db, 'test_operator', async (client) => {
      const add = (values: string) =>
        client.query(`SELECT ${db.quoted}.add_tenant_token(${values})`);
      const hash = `sha256('x')`;
      await expect(add(`NULL, ${hash}`)).rejects.toThrow('tenant_id is null');
      await expect(add(`'a', ${hash}, 'admin'`)).rejects.toThrow('scope is admin');
      await expect(add(`'a', ${hash}, lifetime => '2 days'`)).rejects.toThrow('lifetime is');
      await expect(add(`'a', 'x'`)).rejects.toThrow('hash is not a SHA-256');
    });
  });
});

describe('a session that is limited to a tenant', () => {
  const client = (database: Database) => ({
    query: async (sql: string, values: unknown[]) => ({
      rows: await database.query('test', sql, values),
    }),
  });
  const setUp = async () => {
    const topic = `t${Math.random()}`.replace('.', '');
    const own = await addEndpoint(db, { url, topics: [topic], tenantId: 'acme' });
    const foreign = await addEndpoint(db, { url, topics: [topic], tenantId: 'globex' });
    const everybodys = await addEndpoint(db, { url, topics: ['nothing'], tenantId: null });
    const mine = await sendOne(db, { topic, tenantId: 'acme' });
    const theirs = await sendOne(db, { topic, tenantId: 'globex' });
    const server = openDatabase(db, 'test_server');
    return { own, foreign, everybodys, mine, theirs, server, limited: server.asTenant('acme') };
  };

  it('W2 N8 reads only endpoints and messages of its tenant, though no query names it', async () => {
    const { own, foreign, everybodys, mine, theirs, server, limited } = await setUp();
    const { endpoints } = await listEndpoints(limited, {}, { limit: 500 });
    expect(endpoints.map(({ name }) => name)).toContain(own.name);
    expect(new Set(endpoints.map(({ tenantId }) => tenantId))).toEqual(new Set(['acme']));
    expect(await readListedEndpoint(limited, own)).toMatchObject({ name: own.name });
    for (const which of [foreign, everybodys]) {
      expect(await readListedEndpoint(limited, which)).toBeNull();
      expect(await readListedEndpoint(server, which)).toMatchObject({ name: which.name });
      const hour = { from: new Date(Date.now() - 3_600_000), to: new Date() };
      for (const given of [60, hour])
        await expect(readDestinationStatistics(limited, which.name, given)).rejects.toMatchObject({
          code: 'P0002',
        });
    }
    const listed = async (database: Database) => {
      const { messages } = await listMessages(database, {}, { limit: 500 });
      return messages.map(({ messageId }) => messageId);
    };
    expect(await listed(limited)).toContain(mine);
    expect(await listed(limited)).not.toContain(theirs);
    expect(await listed(server)).toEqual(expect.arrayContaining([mine, theirs]));
  });

  it('W2 N8 changes only endpoints of its tenant, though no call names it', async () => {
    const { own, foreign, everybodys, theirs, limited } = await setUp();
    const endpoints = createEndpoints({ schema: db.schema, secretKey: testKey });
    const calls: [string, (name: string) => Promise<unknown>][] = [
      ['change', (name) => endpoints.change(client(limited), { name }, { url })],
      ['rotate', (name) => endpoints.rotate(client(limited), { name })],
      ['retire', (name) => endpoints.retireOldSecrets(client(limited), { name })],
      ['disable', (name) => endpoints.disable(client(limited), { name })],
      ['enable', (name) => endpoints.enable(client(limited), { name })],
      ['pause', (name) => setPaused(limited, name, true, 'x', null)],
      ['test', (name) => sendTest(limited, name, 'x')],
      ['retry', (name) => retryDeliveriesNow(limited, theirs, name, 'x')],
      [
        'dead',
        (name) => changeDeadLetter(limited, 'retry', { messageId: theirs, destination: name }, 'x'),
      ],
      [
        'replay',
        (name) =>
          startReplay(
            limited,
            {
              destination: name,
              tenantId: name === foreign.name ? 'globex' : 'acme',
              since: new Date(0),
            },
            1,
            'x',
          ),
      ],
      ['remove', (name) => endpoints.remove(client(limited), { name })],
    ];
    for (const [what, call] of calls) {
      for (const { name } of [foreign, everybodys])
        await expect(call(name), what).rejects.toMatchObject({ code: 'P0002' });
      await call(own.name);
    }
    for (const tenantId of ['globex', null])
      await expect(
        endpoints.add(client(limited), { url, topics: ['*'], tenantId }),
      ).rejects.toThrow('row-level security');
    await endpoints.add(client(limited), { url, topics: ['*'], tenantId: 'acme' });
  });

  it('W2 N8 answers the requests of a token of one tenant: other names are unknown to every function', async () => {
    const { own, foreign, mine } = await setUp();
    const ask = await (await serveDatabase(db)).as('operate', 'acme');
    const retry = async (destination: string) =>
      (await ask('POST', `/api/messages/${mine}/retry`, { destination })).status;
    expect(await retry(own.name)).toBe(200);
    expect(await retry(foreign.name)).toBe(404);
  });

  it('N8 still finds the destinations of configurations, and the limit ends with the query', async () => {
    const queue = await makeQueue(db);
    const { foreign, server } = await setUp();
    const one = openDatabase(db, 'test_server');
    await setPaused(one.asTenant('acme'), queue.name, true, 'x', null);
    for (let n = 0; n < 20; n += 1) {
      expect(await readListedEndpoint(one.asTenant('acme'), foreign)).toBeNull();
      expect(await readListedEndpoint(one, foreign)).toMatchObject({ name: foreign.name });
    }
    await expect(readListedEndpoint(server.asTenant('globex'), foreign)).resolves.toMatchObject({
      tenantId: 'globex',
    });
  });
});
