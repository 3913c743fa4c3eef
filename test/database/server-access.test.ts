// Access over HTTP: every route by every scope, and the form of a request that may change something.

import { randomUUID } from 'node:crypto';

import { request as httpRequest } from 'node:http';

import { describe, expect, it, onTestFinished } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { findAccess, scopes } from '../../src/features/tokens/database.js';
import { resolveServerOptions } from '../../src/server/options.js';
import { LoginThrottle } from '../../src/server/login-throttle.js';
import type { Route } from '../../src/server/route.js';
import { startServer } from '../../src/server/server.js';
import { describedRoutes } from '../support/api-routes.js';
import { cliOn, json } from '../support/cli.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import type { Ask, TestServer } from '../support/server.js';

const db = testDatabase();
const routes = describedRoutes();

/** Requests something that does not exist: only the access decision matters. */
function pathOf({ path }: Route): string {
  return path
    .replace('{action}', 'retry')
    .replace('{name}', 'nowhere')
    .replaceAll(/\{\w+\}/g, randomUUID());
}

async function tried(ask: Ask, route: Route): Promise<number> {
  const { status } = await ask(
    route.method,
    pathOf(route),
    route.method === 'GET' ? undefined : { destination: 'nowhere' },
  );
  return status;
}

const letIn = (status: number): boolean => ![401, 403, 429].includes(status);

describe('every route by every scope', () => {
  const needs = new Map([
    ['read', 0],
    ['operate', 1],
    ['admin', 2],
  ]);
  // written out, so that a scope that changes by mistake is noticed
  const changing = new Set([
    'POST /api/messages/{id}/retry',
    'POST /api/messages/{id}/delete',
    'POST /api/messages/{id}/resend',
    'POST /api/messages/{id}/restore',
    'POST /api/dead-letters/jobs',
    'POST /api/dead-letters/jobs/{job}/resume',
    'POST /api/dead-letters/jobs/{job}/undo',
    'DELETE /api/dead-letters/jobs/{job}',
    'POST /api/retrying/retry',
    'POST /api/wake',
    'POST /api/replays',
    'POST /api/replays/{replay}/resume',
    'DELETE /api/replays/{replay}',
    'POST /api/destinations/{name}/pause',
    'POST /api/destinations/{name}/resume',
    'POST /api/destinations/{name}/test',
    'POST /api/keys/{messageId}/{action}',
    'POST /api/rollouts/{name}',
    'POST /api/shadow',
    'POST /api/tenant-tokens',
    'POST /api/endpoints',
    'PATCH /api/endpoints/{name}',
    'DELETE /api/endpoints/{name}',
    'POST /api/endpoints/{name}/rotate',
    'POST /api/endpoints/{name}/retire',
    'POST /api/endpoints/{name}/enable',
    'POST /api/endpoints/{name}/disable',
    'POST /api/endpoints/{name}/test',
    'POST /api/endpoints/{name}/replay',
    'POST /api/endpoints/{name}/recover',
    'POST /api/endpoints/{name}/messages/{id}/resend',
  ]);

  it('P13 changes need operate, reads need read', () => {
    for (const { method, path, scope } of routes)
      expect([`${method} ${path}`, scope]).toEqual([
        `${method} ${path}`,
        changing.has(`${method} ${path}`) ? 'operate' : 'read',
      ]);
  });

  it.each(scopes)('P13 %s has access where it may, and nowhere else', async (scope) => {
    const server = await serveDatabase(db);
    const ask = await server.as(scope);
    for (const route of routes) {
      const may = (needs.get(scope) ?? 0) >= (needs.get(route.scope) ?? 0);
      expect([route.path, letIn(await tried(ask, route))]).toEqual([route.path, may]);
    }
  });

  it('P13 a missing or wrong token is refused', async () => {
    const server = await serveDatabase(db);
    for (const route of routes) expect(await tried(server.with({}), route)).toBe(401);
    const wrong = server.with({ authorization: 'Bearer wbt_wrong' });
    expect((await wrong('GET', '/api/health')).status).toBe(401);
    expect((await server.with({ authorization: 'Basic eDp5' })('GET', '/api/health')).status).toBe(
      401,
    );
  });

  it('P13 a token of one tenant has access only where the response can be limited to it', async () => {
    const server = await serveDatabase(db);
    const ask = await server.as('admin', 'acme');
    for (const route of routes)
      expect([route.path, letIn(await tried(ask, route))]).toEqual([
        route.path,
        route.forTenants ?? false,
      ]);
  });

  it('P13 health and readiness are open, and contain only numbers', async () => {
    const ask = (await serveDatabase(db)).with({});
    const { status, body } = await ask('GET', '/healthz');
    expect(status).toBe(200);
    expect(Object.keys(body)).toEqual(['status', 'counts']);
    for (const [name, value] of Object.entries(body['counts'] as object))
      expect([name, value === null || typeof value === 'number']).toEqual([name, true]);
    expect((await ask('GET', '/readyz')).body).toEqual({ ready: true });
  });
});

describe('a token of one tenant', () => {
  it('P13 sees the messages of its tenant and no others, whatever it requests', async () => {
    const queue = await makeQueue(db);
    const [own = ''] = await queue.enqueue(1, { tenantId: 'acme' });
    const [other = ''] = await queue.enqueue(1, { tenantId: 'globex' });
    const [nobodys = ''] = await queue.enqueue(1);
    const server = await serveDatabase(db);
    const ask = await server.as('operate', 'acme');
    for (const query of ['', '?tenantId=acme', `?topic=${queue.topic}`, '?status=pending']) {
      const { body } = await ask('GET', `/api/messages${query}`);
      const ids = (body['messages'] as { messageId: string }[]).map(({ messageId }) => messageId);
      expect(ids).toContain(own);
      expect(ids).not.toContain(other);
      expect(ids).not.toContain(nobodys);
    }
    for (const [method, path, body] of [
      ['GET', '/api/messages?tenantId=globex'],
      ['GET', '/api/tail?tenantId=globex'],
      ['GET', '/api/endpoints?tenantId=globex'],
      ['GET', '/api/dead-letters/groups?tenantId=globex'],
      ['POST', '/api/dead-letters/plan', { action: 'retry', tenantId: 'globex' }],
    ] as const)
      expect(await ask(method, path, body)).toMatchObject({
        status: 403,
        body: { error: expect.stringContaining('the tenant acme only: leave tenantId') as string },
      });
    expect((await ask('GET', `/api/messages/${own}`)).status).toBe(200);
    for (const id of [other, nobodys]) {
      expect((await ask('GET', `/api/messages/${id}`)).status).toBe(404);
      expect((await ask('GET', `/api/messages/${id}/payload`)).status).toBe(404);
      expect((await ask('POST', `/api/messages/${id}/delete`, {})).status).toBe(404);
    }
    expect((await queue.waiting()).map(({ message_id }) => message_id)).toContain(other);
  });
});

describe('tokens', () => {
  it('P13 are printed once, stored as hashes, and end when they are removed', async () => {
    const made = json(
      await cliOn(db, ['tokens', 'add', 'alice', '--scope', 'operate', '--json']),
    ) as {
      token: string;
    };
    expect(made).toMatchObject({ name: 'alice', scope: 'operate', tenantId: null });
    const { rows } = await db.query(`SELECT t::text AS row FROM ${db.quoted}.tokens t`);
    expect(JSON.stringify(rows)).not.toContain(made.token);
    const server = await serveDatabase(db);
    const ask = server.with({ authorization: `Bearer ${made.token}` });
    expect((await ask('GET', '/api/session')).body).toMatchObject({
      name: 'alice',
      scope: 'operate',
    });
    const listed = await cliOn(db, ['tokens', 'list']);
    expect(listed.stdout).toContain('alice');
    expect(listed.stdout).not.toContain(made.token);
    expect(await cliOn(db, ['tokens', 'add', 'alice'])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('there is a token "alice" already') as string,
    });
    expect(await cliOn(db, ['tokens', 'remove', 'alice', '--yes'])).toMatchObject({ code: 0 });
    expect((await ask('GET', '/api/session')).status).toBe(401);
    expect(await cliOn(db, ['tokens', 'remove', 'alice', '--yes'])).toMatchObject({ code: 3 });
  });

  it('P13 end at their time, by the clock of the database', async () => {
    const server = await serveDatabase(db);
    const ask = await server.as('read');
    expect((await ask('GET', '/api/health')).status).toBe(200);
    await db.query(`UPDATE ${db.quoted}.tokens SET expires_at = clock_timestamp()`);
    expect((await ask('GET', '/api/health')).status).toBe(401);
  });

  it('P13 after too many wrong tokens an address is refused for a while', async () => {
    let nowMs = 10;
    const throttle = new LoginThrottle({ limit: 3, windowMs: 1000, now: () => nowMs });
    const wrong = (from: string) => throttle.check(from, () => Promise.resolve(null));
    for (let count = 0; count < 3; count += 1) expect(await wrong('a')).toBeNull();
    nowMs = 1000;
    await expect(wrong('a')).rejects.toMatchObject({ status: 429 });
    expect(await wrong('b')).toBeNull();
    nowMs = 1011;
    expect(await wrong('a')).toBeNull();
  });

  it('P13 more than a thousand concurrent wrong tokens do not keep out a valid one that was never seen', async () => {
    const server = await serveDatabase(db);
    const guess = (n: number) => server.with({ authorization: `Bearer wbt_${n}` });
    const unseen = await server.as('read');
    const token = await server.token('read');
    // no response until all have come
    const client = await db.connect();
    await client.query(`BEGIN; LOCK TABLE ${db.quoted}.tokens`);
    const flood = Array.from({ length: 1200 }, (_, n) => guess(n)('GET', '/api/health'));
    await guess(-1)('GET', '/readyz');
    const asked = unseen('GET', '/api/health');
    const loggedIn = server.with({})('POST', '/api/session', { token });
    await guess(-1)('GET', '/readyz');
    await client.query('COMMIT');
    expect((await asked).status).toBe(200);
    expect((await loggedIn).status).toBe(200);
    const statuses = (await Promise.all(flood)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 401)).toHaveLength(20);
    expect(statuses.filter((status) => status === 429)).toHaveLength(1180);
  });

  it('P13 concurrent look-ups of many secrets share a few queries', async () => {
    const server = await serveDatabase(db);
    const tokens = await Promise.all([server.token('read'), server.token('admin')]);
    const database = openDatabase(db, 'test_server');
    let queries = 0;
    const counting: Pick<Database, 'query' | 'schema'> = {
      schema: database.schema,
      query: (...call) => {
        queries += 1;
        return database.query(...call);
      },
    };
    const secrets = [...Array.from({ length: 2500 }, (_, n) => `wbt_${n}`), ...tokens];
    const found = await Promise.all(secrets.map((secret) => findAccess(counting, secret)));
    expect(found.filter((access) => access !== null)).toMatchObject([
      { scope: 'read' },
      { scope: 'admin' },
    ]);
    expect(found.slice(0, 2500).every((access) => access === null)).toBe(true);
    expect(queries).toBe(4);
    await db.query(`ALTER TABLE ${db.quoted}.tokens RENAME TO tokens_away`);
    onTestFinished(async () => {
      await db.query(`ALTER TABLE ${db.quoted}.tokens_away RENAME TO tokens`);
    });
    await expect(findAccess(database, 'wbt_0')).rejects.toThrow('tokens');
  });

  it.each([
    ['with a token', (server: TestServer) => server.with({ authorization: 'Bearer wbt_guess' })],
    [
      'at the login',
      (server: TestServer): Ask =>
        () =>
          server.with({})('POST', '/api/session', { token: 'wbt_guess' }),
    ],
  ])(
    'P13 of two hundred concurrent wrong tokens twenty are answered, the others refused, %s',
    async (_how, asker) => {
      const server = await serveDatabase(db);
      const ask = asker(server);
      // no response until all have come
      const client = await db.connect();
      await client.query(`BEGIN; LOCK TABLE ${db.quoted}.tokens`);
      const asked = Promise.all(Array.from({ length: 200 }, () => ask('GET', '/api/health')));
      await server.with({})('GET', '/readyz');
      await client.query('COMMIT');
      const answers = await asked;
      const count = (status: number) => answers.filter((answer) => answer.status === status).length;
      expect([count(401), count(429)]).toEqual([20, 180]);
    },
  );

  it('P13 two hundred concurrent valid tokens are all accepted', async () => {
    const ask = await (await serveDatabase(db)).as('read');
    const answers = await Promise.all(
      Array.from({ length: 200 }, () => ask('GET', '/api/session')),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  });

  it('P13 after twenty wrong tokens the server refuses others, and accepts valid ones', async () => {
    const server = await serveDatabase(db);
    const seen = await server.as('read');
    expect((await seen('GET', '/api/health')).status).toBe(200);
    const wrong = server.with({ authorization: 'Bearer wbt_guess' });
    for (let count = 0; count < 20; count += 1)
      expect((await wrong('GET', '/api/health')).status).toBe(401);
    expect(await wrong('GET', '/api/health')).toMatchObject({ status: 429 });
    const logIn = (token: string) => server.with({})('POST', '/api/session', { token });
    expect((await logIn('wbt_guess')).status).toBe(429);
    const flood = Promise.all(Array.from({ length: 100 }, () => wrong('GET', '/api/health')));
    expect((await seen('GET', '/api/health')).status).toBe(200);
    const unseen = await server.as('read');
    expect((await unseen('GET', '/api/health')).status).toBe(200);
    const { token } = json(await cliOn(db, ['tokens', 'add', 'eve', '--json'])) as {
      token: string;
    };
    expect(await logIn(token)).toMatchObject({ status: 200, body: { name: 'eve' } });
    expect(new Set((await flood).map(({ status }) => status))).toEqual(new Set([429]));
    // the database decides, also for a secret that was valid before
    await db.query(`UPDATE ${db.quoted}.tokens SET expires_at = clock_timestamp()`);
    expect((await seen('GET', '/api/health')).status).toBe(429);
  });

  it('P13 a client without a token learns nothing of a database that cannot be reached', async () => {
    const nowhere = resolveDatabaseOptions({ url: 'postgresql://owner@127.0.0.1:1/none' });
    const database = new Database(nowhere, { connections: 1, applicationName: 'test' });
    const server = await startServer(resolveServerOptions({ port: 0, authentication: 'tokens' }), {
      database,
      isReady: () => true,
    });
    onTestFinished(async () => {
      await server.close();
      await database.close();
    });
    const headers = { authorization: 'Bearer wbt_guess', 'content-type': 'application/json' };
    const answers = await Promise.all([
      fetch(`${server.url}/healthz`),
      fetch(`${server.url}/metrics`, { headers }),
      fetch(`${server.url}/api/health`, { headers }),
      fetch(`${server.url}/api/session`, { method: 'POST', headers, body: '{"token": "t"}' }),
      fetch(`${server.url}/api/session`, {
        method: 'DELETE',
        headers: { cookie: 'waybill_session=t' },
      }),
    ]);
    for (const answer of answers) {
      expect([answer.url, answer.status]).toEqual([answer.url, 503]);
      expect(await answer.text()).not.toMatch(/127|ECONN|owner|none|connect /);
    }
  });
});

describe('a login', () => {
  it('P13 sets a cookie that scripts and other sites cannot use, and ends with the logout', async () => {
    const server = await serveDatabase(db);
    const { token } = json(await cliOn(db, ['tokens', 'add', 'bob', '--json'])) as {
      token: string;
    };
    const plain = server.with({});
    expect((await plain('POST', '/api/session', { token: 'wbt_no' })).status).toBe(401);
    const login = await plain('POST', '/api/session', { token });
    expect(login).toMatchObject({ status: 200, body: { name: 'bob', scope: 'read' } });
    const set = login.headers.get('set-cookie') ?? '';
    expect(set).toMatch(/HttpOnly/);
    expect(set).toMatch(/SameSite=Strict/);
    expect(set).toMatch(/Path=\//);
    expect(set).not.toContain(token);
    const cookie = set.split(';')[0] ?? '';
    const ask = server.with({ cookie });
    expect((await ask('GET', '/api/health')).status).toBe(200);
    await ask('DELETE', '/api/session');
    expect((await ask('GET', '/api/health')).status).toBe(401);
  });

  it('P13 is marked secure behind a proxy with TLS', async () => {
    const server = await serveDatabase(db);
    const { token } = json(await cliOn(db, ['tokens', 'add', 'carol', '--json'])) as {
      token: string;
    };
    const login = await server.with({ 'x-forwarded-proto': 'https' })('POST', '/api/session', {
      token,
    });
    expect(login.headers.get('set-cookie')).toMatch(/Secure/);
  });
});

describe('a change', () => {
  it.each([
    ['from another site', { 'sec-fetch-site': 'cross-site' }, 403],
    ['from a sibling site', { 'sec-fetch-site': 'same-site' }, 403],
    ['from another origin', { origin: 'https://evil.example' }, 403],
    ['from an unreadable origin', { origin: 'null' }, 403],
    ['as a form', { 'content-type': 'application/x-www-form-urlencoded' }, 415],
    ['as plain text', { 'content-type': 'text/plain' }, 415],
  ])('P13 %s is refused', async (_name, headers, status) => {
    const server = await serveDatabase(db, { authentication: 'none' });
    const ask = server.with(headers);
    expect((await ask('POST', '/api/retrying/retry', '{}')).status).toBe(status);
  });

  it('P13 of the same origin, or from no page at all, is accepted', async () => {
    const server = await serveDatabase(db, { authentication: 'none' });
    for (const headers of [{}, { origin: server.url, 'sec-fetch-site': 'same-origin' }])
      expect((await server.with(headers)('POST', '/api/retrying/retry', {})).status).toBe(200);
  });

  it('P13 with a body that is too long, too deep, not JSON, or not an object is refused', async () => {
    const ask = (await serveDatabase(db, { authentication: 'none' })).with({});
    expect((await ask('POST', '/api/retrying/retry', 'x'.repeat(1_100_000))).status).toBe(413);
    const deep = `{"ids": ${'['.repeat(5000)}${']'.repeat(5000)}}`;
    expect(await ask('POST', '/api/retrying/retry', deep)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining('at most 100 levels') as string },
    });
    expect(await ask('POST', '/api/retrying/retry', '{')).toMatchObject({ status: 400 });
    expect(await ask('POST', '/api/retrying/retry', '[]')).toMatchObject({ status: 400 });
  });

  it.each([
    ['no JSON', '{', 400],
    ['nothing', 'null', 400],
    ['no text', '{"token": 7}', 401],
  ])('P13 a login that is %s is refused as an error of the client', async (_what, body, status) => {
    const server = await serveDatabase(db);
    expect(await server.with({})('POST', '/api/session', body)).toMatchObject({ status });
  });

  it('P13 an endless body without a token is not read to its end', async () => {
    const { url } = await serveDatabase(db);
    const chunk = Buffer.alloc(64 * 1024, ' ');
    const most = 64 * 1024 * 1024;
    let sent = 0;
    const status = await new Promise<number | undefined>((resolve) => {
      const request = httpRequest(
        `${url}/api/session`,
        { method: 'POST', headers: { 'content-type': 'application/json' } },
        (response) => {
          response.resume();
          request.destroy();
          resolve(response.statusCode);
        },
      );
      request.on('error', () => resolve(undefined));
      const send = (): void => {
        if (request.destroyed) return;
        sent += chunk.length;
        if (sent >= most) request.end();
        else request.write(chunk, send);
      };
      send();
    });
    expect(status).toBe(413);
    expect(sent).toBeLessThan(most);
  });

  it.each([
    ['is of another filter', ['all', null]],
    ['is not a cursor', ['queue', ['x', 'y', 'z']]],
    ['has too few parts', ['queue', ['-infinity']]],
    ['has too many parts', ['queue', ['-infinity', '1', '2', '3', '4']]],
  ])('P13 a page cursor that %s is an error of the client', async (_what, place) => {
    const ask = await (await serveDatabase(db)).as('read');
    const next = Buffer.from(JSON.stringify(place)).toString('base64url');
    expect(await ask('GET', `/api/messages?status=pending&next=${next}`)).toMatchObject({
      status: 400,
    });
  });
});

describe('without authentication', () => {
  it('P13 only names of this machine are answered, which stops DNS rebinding', async () => {
    const { url } = await serveDatabase(db, { authentication: 'none' });
    const { request } = await import('undici');
    const ask = async (host: string): Promise<number> => {
      const { statusCode, body } = await request(`${url}/api/health`, { headers: { host } });
      await body.dump();
      return statusCode;
    };
    expect(await ask('localhost')).toBe(200);
    expect(await ask('[::1]:80')).toBe(200);
    expect(await ask('evil.example')).toBe(403);
    expect(await ask('localhost.evil.example')).toBe(403);
  });

  it('P13 it may listen on loopback only', () => {
    expect(() => resolveServerOptions({ host: '0.0.0.0', authentication: 'none' })).toThrow(
      'server.host is "0.0.0.0" and server.authentication is "none"',
    );
    expect(resolveServerOptions({ host: '0.0.0.0' })).toMatchObject({ authentication: 'tokens' });
  });
});

it.each([
  ['gzip, deflate, br', 'gzip'],
  ['identity', null],
  ['gzip;q=0', null],
  ['br, gzip;q=0.5', 'gzip'],
])('P13 the page is the same for a client that accepts %s', async (accepted, encoding) => {
  const server = await serveDatabase(db);
  const plain = await server.with({ 'accept-encoding': 'identity' })('GET', '/');
  const { headers, body } = await server.with({ 'accept-encoding': accepted })('GET', '/');
  expect(headers.get('content-encoding')).toBe(encoding);
  expect(headers.get('vary')).toBe('accept-encoding');
  expect(body).toEqual(plain.body);
});

describe('a frame', () => {
  const policyOf = async (embeddedBy?: string[]) => {
    const server = await serveDatabase(db, embeddedBy && { embeddedBy });
    const { headers } = await server.with({})('GET', '/');
    return headers.get('content-security-policy') ?? '';
  };

  it('P13 around the page is refused, unless the configuration names its origin', async () => {
    expect(await policyOf()).toContain("frame-ancestors 'none'");
    const origins = ['https://www.example.com', 'http://127.0.0.1:8080'];
    expect(await policyOf(origins)).toMatch(
      /; frame-ancestors https:\/\/www\.example\.com http:\/\/127\.0\.0\.1:8080$/,
    );
  });

  it.each([
    'https://www.example.com/',
    'https://www.example.com/wp-admin',
    'https://*.example.com',
    'https://a;script-src',
    'https://a b',
    'http://www.example.com',
    'www.example.com',
    'HTTPS://www.example.com',
    'https://user@www.example.com',
    'https://www.example.com:443',
    'null',
    '*',
    "'self'",
    7,
  ])('P13 cannot be allowed for %j', (origin) => {
    expect(() => resolveServerOptions({ embeddedBy: [origin as string] })).toThrow(
      /^server\.embeddedBy\[0\] is .*: give an origin such as https:\/\/www\.example\.com, without a path/,
    );
  });
});
