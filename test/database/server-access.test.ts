// Who may do what over HTTP: every route by every scope, and what a request must look like to change anything.

import { randomUUID } from 'node:crypto';

import { request as httpRequest } from 'node:http';

import { describe, expect, it } from 'vitest';

import { scopes } from '../../src/database/tokens.js';
import { resolveServerOptions } from '../../src/model/server-options.js';
import { Attempts } from '../../src/server/attempts.js';
import type { Route } from '../../src/server/route.js';
import { describedRoutes } from '../support/api-routes.js';
import { cliOn, json } from '../support/cli.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import type { Ask, TestServer } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const routes = describedRoutes();

/** Asks for something that is not there: what matters is whether one is let in. */
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
  // written out, so that a route whose scope is changed by mistake is noticed
  const changing = new Set([
    'POST /api/messages/{id}/retry',
    'POST /api/messages/{id}/delete',
    'POST /api/dead-letters/jobs',
    'POST /api/dead-letters/jobs/{job}/resume',
    'DELETE /api/dead-letters/jobs/{job}',
    'POST /api/retrying/retry',
    'POST /api/replays',
    'POST /api/replays/{replay}/resume',
    'DELETE /api/replays/{replay}',
    'POST /api/destinations/{name}/pause',
    'POST /api/destinations/{name}/resume',
    'POST /api/destinations/{name}/test',
    'POST /api/keys/{messageId}/{action}',
    'POST /api/rollouts/{name}',
    'POST /api/shadow',
  ]);

  it('P13 what changes something needs operate, what reads needs read', () => {
    for (const { method, path, scope } of routes)
      expect([`${method} ${path}`, scope]).toEqual([
        `${method} ${path}`,
        changing.has(`${method} ${path}`) ? 'operate' : 'read',
      ]);
  });

  it.each(scopes)('P13 %s is let in where it may, and nowhere else', async (scope) => {
    const server = await serveDatabase(db);
    const ask = await server.as(scope);
    for (const route of routes) {
      const may = (needs.get(scope) ?? 0) >= (needs.get(route.scope) ?? 0);
      expect([route.path, letIn(await tried(ask, route))]).toEqual([route.path, may]);
    }
  });

  it('P13 nobody is let in without a token, or with a wrong one', async () => {
    const server = await serveDatabase(db);
    for (const route of routes) expect(await tried(server.with({}), route)).toBe(401);
    const wrong = server.with({ authorization: 'Bearer wbt_wrong' });
    expect((await wrong('GET', '/api/health')).status).toBe(401);
    expect((await server.with({ authorization: 'Basic eDp5' })('GET', '/api/health')).status).toBe(
      401,
    );
  });

  it('P13 a token of one tenant is let in only where the answer can be limited to it', async () => {
    const server = await serveDatabase(db);
    const ask = await server.as('admin', 'acme');
    for (const route of routes)
      expect([route.path, letIn(await tried(ask, route))]).toEqual([
        route.path,
        route.forTenants ?? false,
      ]);
  });

  it('P13 health and readiness are open, and tell counts only', async () => {
    const ask = (await serveDatabase(db)).with({});
    expect((await ask('GET', '/healthz')).status).toBe(200);
    expect((await ask('GET', '/readyz')).body).toEqual({ ready: true });
  });
});

describe('a token of one tenant', () => {
  it('P13 sees the messages of its tenant and no others, whatever it asks for', async () => {
    const queue = await makeQueue(db);
    const [own = ''] = await queue.enqueue(1, { tenantId: 'acme' });
    const [other = ''] = await queue.enqueue(1, { tenantId: 'globex' });
    const [nobodys = ''] = await queue.enqueue(1);
    const server = await serveDatabase(db);
    const ask = await server.as('operate', 'acme');
    for (const query of ['', '?tenantId=globex', `?topic=${queue.topic}`, '?status=waiting']) {
      const { body } = await ask('GET', `/api/messages${query}`);
      const ids = (body['messages'] as { messageId: string }[]).map(({ messageId }) => messageId);
      expect(ids).toContain(own);
      expect(ids).not.toContain(other);
      expect(ids).not.toContain(nobodys);
    }
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
  it('P13 are printed once, kept as hashes, and end when they are removed', async () => {
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

  it('P13 after too many wrong ones from an address no more are looked at, for a while', async () => {
    let nowMs = 10;
    const attempts = new Attempts({ most: 3, windowMs: 1000, now: () => nowMs });
    const wrong = (from: string) => attempts.look(from, () => Promise.resolve(null));
    for (let count = 0; count < 3; count += 1) expect(await wrong('a')).toBeNull();
    nowMs = 1000;
    await expect(wrong('a')).rejects.toMatchObject({ status: 429 });
    expect(await wrong('b')).toBeNull();
    nowMs = 1011;
    expect(await wrong('a')).toBeNull();
  });

  it('P13 what is being looked at counts until it is known to be right; the next ones wait for that', async () => {
    const attempts = new Attempts({ most: 2 });
    const answers: ((found: string | null | Promise<null>) => void)[] = [];
    const looks = Array.from({ length: 5 }, () =>
      attempts
        .look('a', () => new Promise<string | null>((resolve) => answers.push(resolve)))
        .catch((error: { status?: number }) => error.status ?? 'away'),
    );
    const asked = (count: number) =>
      waitFor(() => answers.length === count, { what: `${count} questions` });
    await asked(2);
    answers[0]?.('right');
    await asked(3);
    // nobody knows whether it was wrong
    answers[1]?.(Promise.reject(new Error('away')));
    await asked(4);
    answers[2]?.(null);
    expect(await looks[2]).toBeNull();
    answers[3]?.(null);
    expect(await Promise.all(looks)).toEqual(['right', 'away', null, null, 429]);
    expect(answers).toHaveLength(4);
  });

  it.each([
    ['with a token', (server: TestServer) => server.with({ authorization: 'Bearer wbt_guess' })],
    [
      'at the login',
      (server: TestServer): Ask =>
        () =>
          server.with({})('POST', '/api/session', { token: 'wbt_guess' }),
    ],
  ])('P13 of two hundred wrong ones at once twenty are looked at, %s', async (_how, asker) => {
    const server = await serveDatabase(db);
    const ask = asker(server);
    // no answer until all have come
    const client = await db.connect();
    await client.query(`BEGIN; LOCK TABLE ${db.quoted}.tokens`);
    const asked = Promise.all(Array.from({ length: 200 }, () => ask('GET', '/api/health')));
    await server.with({})('GET', '/readyz');
    await client.query('COMMIT');
    const answers = await asked;
    const count = (status: number) => answers.filter((answer) => answer.status === status).length;
    expect([count(401), count(429)]).toEqual([20, 180]);
  });

  it('P13 two hundred right ones at once are all let in', async () => {
    const ask = await (await serveDatabase(db)).as('read');
    const answers = await Promise.all(
      Array.from({ length: 200 }, () => ask('GET', '/api/session')),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  });

  it('P13 the server refuses after twenty wrong tokens, also a right one, and says so', async () => {
    const server = await serveDatabase(db);
    const right = await server.as('read');
    const wrong = server.with({ authorization: 'Bearer wbt_guess' });
    for (let count = 0; count < 20; count += 1)
      expect((await wrong('GET', '/api/health')).status).toBe(401);
    expect(await wrong('GET', '/api/health')).toMatchObject({ status: 429 });
    expect((await right('GET', '/api/health')).status).toBe(429);
    expect((await server.with({})('POST', '/api/session', { token: 'wbt_guess' })).status).toBe(
      429,
    );
  });
});

describe('a login', () => {
  it('P13 gives a cookie that scripts and other sites cannot use, and ends with the logout', async () => {
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

  it('P13 is marked secure behind a proxy that speaks TLS', async () => {
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
    ['from no origin that can be read', { origin: 'null' }, 403],
    ['as a form', { 'content-type': 'application/x-www-form-urlencoded' }, 415],
    ['as plain text', { 'content-type': 'text/plain' }, 415],
  ])('P13 %s is refused', async (_name, headers, status) => {
    const server = await serveDatabase(db, { authentication: 'none' });
    const ask = server.with(headers);
    expect((await ask('POST', '/api/retrying/retry', '{}')).status).toBe(status);
  });

  it('P13 of our own origin, or of no page at all, is not', async () => {
    const server = await serveDatabase(db, { authentication: 'none' });
    for (const headers of [{}, { origin: server.url, 'sec-fetch-site': 'same-origin' }])
      expect((await server.with(headers)('POST', '/api/retrying/retry', {})).status).toBe(200);
  });

  it('P13 what is too long, no JSON, or no object is refused', async () => {
    const ask = (await serveDatabase(db, { authentication: 'none' })).with({});
    expect((await ask('POST', '/api/retrying/retry', 'x'.repeat(1_100_000))).status).toBe(413);
    expect(await ask('POST', '/api/retrying/retry', '{')).toMatchObject({ status: 400 });
    expect(await ask('POST', '/api/retrying/retry', '[]')).toMatchObject({ status: 400 });
  });

  it.each([
    ['no JSON', '{', 400],
    ['nothing', 'null', 400],
    ['no text', '{"token": 7}', 401],
  ])(
    'P13 a login that is %s is refused, and is no mistake of ours',
    async (_what, body, status) => {
      const server = await serveDatabase(db);
      expect(await server.with({})('POST', '/api/session', body)).toMatchObject({ status });
    },
  );

  it('P13 a body that does not say how long it is is not read to its end, least of all from strangers', async () => {
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
    ['is no place', ['queue', ['x', 'y', 'z']]],
    ['has too little of a place', ['queue', ['-infinity']]],
    ['has too much of a place', ['queue', ['-infinity', '1', '2', '3', '4']]],
  ])('P13 a place to go on from that %s is a mistake of whoever asks', async (_what, place) => {
    const ask = await (await serveDatabase(db)).as('read');
    const next = Buffer.from(JSON.stringify(place)).toString('base64url');
    expect(await ask('GET', `/api/messages?status=waiting&next=${next}`)).toMatchObject({
      status: 400,
    });
  });
});

describe('without authentication', () => {
  it('P13 only names of this machine are answered: a name that was rebound to it is not', async () => {
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

  it('P13 it may not listen beyond loopback', () => {
    expect(() => resolveServerOptions({ host: '0.0.0.0', authentication: 'none' })).toThrow(
      'server.host is "0.0.0.0" and server.authentication is "none"',
    );
    expect(resolveServerOptions({ host: '0.0.0.0' })).toMatchObject({ authentication: 'tokens' });
  });
});
