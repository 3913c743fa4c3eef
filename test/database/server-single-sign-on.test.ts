// Single sign-on through a proxy: whose header is believed, what the groups of a user allow, and who is recorded. Also
// the base path of such a proxy.

import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { text as textOf } from 'node:stream/consumers';

import { describe, expect, it } from 'vitest';

import example from '../../examples/single-sign-on/waybill.config.js';
import { ShardsAccess } from '../../src/features/shards/access.js';
import { resolveServerOptions } from '../../src/server/options.js';
import type { SingleSignOnOptions } from '../../src/server/single-sign-on.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();

const signOn: SingleSignOnOptions = {
  proxies: ['127.0.0.1', '::1'],
  userHeader: 'X-User',
  groupsHeader: 'X-Groups',
  scopes: { '*': 'read', support: 'operate', platform: 'admin' },
};

const session = '/api/session';

/** fetch would join the values of a header. */
async function sendRaw(url: string, headers: Record<string, string[]>) {
  const request = httpRequest(url + session, { headers }).end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return { status: response.statusCode, text: await textOf(response) };
}

describe('a user whom the proxy names', () => {
  it.each([
    ['', 'read'],
    ['sales', 'read'],
    ['support', 'operate'],
    ['sales, support', 'operate'],
    ['platform,support', 'admin'],
  ])('P13 with the groups "%s" has the scope %s', async (groups, scope) => {
    const server = await serveDatabase(db, { singleSignOn: signOn });
    const ask = server.with({ 'x-user': 'ada@example.com', 'x-groups': groups });
    expect(await ask('GET', session)).toMatchObject({
      status: 200,
      body: { name: 'ada@example.com', scope, tenantId: null, signedOn: true },
    });
  });

  it('P13 is refused what the scope does not allow, and recorded as who did the rest', async () => {
    const { name } = await makeQueue(db);
    const server = await serveDatabase(db, { singleSignOn: signOn });
    const ada = { 'x-user': 'ada@example.com' };
    const pause = `/api/destinations/${name}/pause`;
    expect(await server.with(ada)('POST', pause, {})).toMatchObject({
      status: 403,
      body: { error: 'this needs the scope operate, and ada@example.com has read' },
    });
    const support = server.with({ ...ada, 'x-groups': 'support' });
    expect((await support('POST', pause, {})).status).toBe(200);
    const { body } = await support('GET', '/api/audit?action=pause&limit=1');
    expect(body).toMatchObject({ actions: [{ actor: 'sso:ada@example.com' }] });
  });

  it('P13 is refused without a group that has a scope', async () => {
    const scopes = { support: 'operate' } as const;
    const server = await serveDatabase(db, { singleSignOn: { ...signOn, scopes } });
    const ask = server.with({ 'x-user': 'ada', 'x-groups': 'sales' });
    expect(await ask('GET', session)).toMatchObject({
      status: 403,
      body: { error: 'ada is in no group that may use this server' },
    });
  });

  it.each([
    ['x-user', ['mallory', 'ada'], 'x-user was sent twice'],
    ['x-user', ['mallory, ada'], 'x-user has a comma'],
    ['x-groups', ['platform', 'sales'], 'x-groups was sent twice'],
    ['x-user', ['ada\u0085'], 'x-user has control characters'],
  ])('P13 is refused with %s %j', async (name, values, words) => {
    const server = await serveDatabase(db, { singleSignOn: signOn });
    const given = { 'x-user': ['ada'], [name]: values };
    const { status, text } = await sendRaw(server.url, given);
    expect([status, text]).toEqual([403, expect.stringContaining(words)]);
  });

  it('P13 is refused with two secrets of the proxy', async () => {
    const secret = 'a-secret-of-the-proxy';
    const server = await serveDatabase(db, { singleSignOn: { ...signOn, secret } });
    const given = { 'x-user': ['ada'], 'waybill-proxy-secret': [secret, 'another-secret-of-it'] };
    const { status, text } = await sendRaw(server.url, given);
    expect([status, text]).toEqual([403, expect.stringContaining('was sent twice')]);
  });

  it('P13 is named in UTF-8', async () => {
    const server = await serveDatabase(db, { singleSignOn: signOn });
    const { text } = await sendRaw(server.url, {
      'x-user': [Buffer.from('José').toString('latin1')],
    });
    expect(JSON.parse(text)).toMatchObject({ name: 'José' });
  });

  it('P13 stays so beside the authorization that the proxy sends', async () => {
    const server = await serveDatabase(db, { singleSignOn: signOn });
    for (const authorization of ['Basic YWRhOg==', 'Bearer eyJhbGciOiJub25lIn0.e30.', ''])
      expect(
        (await server.with({ 'x-user': 'ada', authorization })('GET', session)).body,
      ).toMatchObject({ name: 'ada' });
  });

  it('P13 is less than a token: the request has the rights of the token', async () => {
    const server = await serveDatabase(db, { singleSignOn: signOn });
    const authorization = `Bearer ${await server.token('read', 'acme')}`;
    const ask = server.with({ 'x-user': 'ada', 'x-groups': 'platform', authorization });
    expect((await ask('GET', session)).body).toMatchObject({ scope: 'read', tenantId: 'acme' });
    const wrong = server.with({ 'x-user': 'ada', authorization: 'Bearer wbt_wrong' });
    expect((await wrong('GET', session)).status).toBe(401);
  });
});

describe('a login with a token beside single sign-on', () => {
  it('P13 has the rights of the token until the logout', async () => {
    const server = await serveDatabase(db, { singleSignOn: signOn });
    const ada = { 'x-user': 'ada', 'x-groups': 'platform' };
    const token = await server.token('read', 'acme');
    const login = await server.with(ada)('POST', session, { token });
    expect(login.status).toBe(200);
    const cookie = String(login.headers.get('set-cookie')).split(';')[0] ?? '';
    // also beside what the proxy sends as authorization
    for (const more of [{}, { authorization: 'Basic YWRhOg==' }])
      expect(await server.with({ ...ada, ...more, cookie })('GET', session)).toMatchObject({
        status: 200,
        body: { scope: 'read', tenantId: 'acme' },
      });
    expect((await server.with(ada)('GET', session)).body).toMatchObject({ name: 'ada' });
    // a token in the request counts more
    const authorization = `Bearer ${await server.token('operate')}`;
    expect(
      (await server.with({ ...ada, cookie, authorization })('GET', session)).body,
    ).toMatchObject({ scope: 'operate' });
    expect((await server.with({ ...ada, cookie })('DELETE', session)).status).toBe(200);
    // the browser may have kept the cookie; more requests than the login throttle allows failures
    for (let n = 0; n < 25; n += 1)
      expect((await server.with({ ...ada, cookie })('GET', session)).body).toMatchObject({
        name: 'ada',
        scope: 'admin',
        signedOn: true,
      });
  });

  it('P13 is that of one user, also in a browser that another one uses next', async () => {
    const server = await serveDatabase(db, { singleSignOn: signOn });
    const [ada, bob] = [{ 'x-user': 'ada' }, { 'x-user': 'bob' }];
    const token = await server.token('admin');
    const login = await server.with(ada)('POST', session, { token });
    const cookie = String(login.headers.get('set-cookie')).split(';')[0] ?? '';
    expect((await server.with({ ...ada, cookie })('GET', session)).body).toMatchObject({
      scope: 'admin',
    });
    expect((await server.with({ ...bob, cookie })('GET', session)).body).toMatchObject({
      name: 'bob',
      scope: 'read',
    });
    // without a user of the proxy it is no login either
    expect((await server.with({ cookie })('GET', session)).status).toBe(401);
    // a logout of the other user does not end it
    expect((await server.with({ ...bob, cookie })('DELETE', session)).status).toBe(200);
    expect((await server.with({ ...ada, cookie })('GET', session)).body).toMatchObject({
      scope: 'admin',
    });
  });

  it('P13 opens the server to a user who is in no group', async () => {
    const scopes = { support: 'operate' } as const;
    const server = await serveDatabase(db, { singleSignOn: { ...signOn, scopes } });
    const ask = server.with({ 'x-user': 'ada', 'x-groups': 'sales' });
    const login = await ask('POST', session, { token: await server.token('read') });
    const cookie = String(login.headers.get('set-cookie')).split(';')[0] ?? '';
    const again = server.with({ 'x-user': 'ada', 'x-groups': 'sales', cookie });
    expect(await again('GET', session)).toMatchObject({ status: 200, body: { scope: 'read' } });
  });
});

describe('what concerns all shards', () => {
  it('P13 is decided by the login of a user with a token, while it is valid', async () => {
    const server = await serveDatabase(db, { singleSignOn: signOn });
    const { singleSignOn } = resolveServerOptions({ singleSignOn: signOn });
    const access = new ShardsAccess([{ name: 'eu', database: openDatabase(db) }], singleSignOn);
    const login = async (user: string, scope: 'read' | 'admin') => {
      const token = await server.token(scope);
      const { headers } = await server.with({ 'x-user': user })('POST', session, { token });
      const [cookie = ''] = String(headers.get('set-cookie')).split(';');
      return cookie.replace('waybill_session', 'waybill_session_eu');
    };
    const from = (user: string, groups: string, cookie: string) =>
      ({
        req: { header: () => undefined, raw: { headers: new Headers({ cookie }) } },
        env: {
          incoming: {
            socket: { remoteAddress: '127.0.0.1' },
            headersDistinct: { 'x-user': [user], 'x-groups': [groups] },
          },
        },
      }) as never;
    const raised = await login('ada', 'admin');
    await expect(access.check(from('ada', '', ''), 'admin')).rejects.toThrow('ada has read');
    await access.check(from('ada', '', raised), 'admin');
    // the login of another user of the browser
    await expect(access.check(from('bob', '', raised), 'admin')).rejects.toThrow('bob has read');
    // a login can also have fewer rights
    const lowered = await login('ada', 'read');
    await expect(access.check(from('ada', 'platform', lowered), 'admin')).rejects.toThrow(
      'this needs the scope admin',
    );
    await access.check(from('ada', 'platform', `${lowered}x`), 'admin');
  });
});

describe('the header', () => {
  it.each([
    ['another address', { ...signOn, proxies: ['10.0.0.0/8', '2001:db8::/32'] }, {}],
    ['no secret', { ...signOn, secret: 'a-secret-of-the-proxy' }, {}],
    [
      'a wrong secret',
      { ...signOn, secret: 'a-secret-of-the-proxy' },
      { 'waybill-proxy-secret': 'another-secret-of-it' },
    ],
  ])('P13 from %s names no user', async (_, singleSignOn, headers) => {
    const server = await serveDatabase(db, { singleSignOn });
    const ask = server.with({ 'x-user': 'ada', 'x-groups': 'platform', ...headers });
    expect((await ask('GET', session)).status).toBe(401);
  });

  it('P13 with the right secret, from a network of proxies, names the user', async () => {
    const secret = 'a-secret-of-the-proxy';
    const server = await serveDatabase(db, {
      singleSignOn: { ...signOn, proxies: ['127.0.0.0/8'], secret },
    });
    const ask = server.with({ 'x-user': 'ada', 'waybill-proxy-secret': secret });
    expect((await ask('GET', session)).body).toMatchObject({ name: 'ada' });
  });

  it('P13 means nothing without the option', async () => {
    const server = await serveDatabase(db);
    expect((await server.with({ 'x-user': 'ada' })('GET', session)).status).toBe(401);
  });

  it('P13 opens what concerns all shards too', async () => {
    const { singleSignOn } = resolveServerOptions({ singleSignOn: signOn });
    const access = new ShardsAccess([], singleSignOn);
    const from = (remoteAddress: string) =>
      ({
        req: { header: () => undefined },
        env: { incoming: { socket: { remoteAddress }, headersDistinct: { 'x-user': ['ada'] } } },
      }) as never;
    expect(await access.mayRead(from('::ffff:127.0.0.1'))).toBe(true);
    expect(await access.mayRead(from('127.0.0.2'))).toBe(false);
  });
});

describe('options', () => {
  it('P13 of the example are accepted', () => {
    expect(resolveServerOptions(example.server ?? {}).singleSignOn).toMatchObject({
      userHeader: 'x-forwarded-email',
    });
  });

  it.each([
    [{ proxies: [] }, 'server.singleSignOn.proxies is []: give a list of 1 to 100 values'],
    [{ proxies: ['proxy'] }, 'server.singleSignOn.proxies[0] is "proxy": give an address'],
    [{ proxies: ['10.0.0.0/33'] }, 'server.singleSignOn.proxies[0] is "10.0.0.0/33"'],
    [{ proxies: ['0.0.0.0/0'] }, 'this one has every address'],
    [{ proxies: ['::/0'] }, 'this one has every address'],
    [{ scopes: { ' support': 'read' } }, 'has the group " support": a group has a name without'],
    [{ userHeader: 'cookie' }, 'server.singleSignOn.userHeader is "cookie": give the name'],
    [{ userHeader: 'a b' }, 'server.singleSignOn.userHeader is "a b"'],
    [{ groupsHeader: 'x-user' }, 'server.singleSignOn.groupsHeader is userHeader too'],
    [{ groupsHeader: undefined }, 'has the group "support", and groupsHeader is not set'],
    [{ scopes: {} }, 'server.singleSignOn.scopes is {}: give a scope for each group'],
    [{ scopes: { 'a,b': 'read' } }, 'has the group "a,b": a group has a name without commas'],
    [{ scopes: { '*': 'write' } }, 'is "write": give read, operate, admin'],
    [{ secret: 'short' }, 'server.singleSignOn.secret'],
    [{ header: 'x' }, 'server.singleSignOn.header is not an option'],
  ])('P13 %j are refused with the reason', (wrong, words) => {
    const singleSignOn = { ...signOn, ...wrong } as SingleSignOnOptions;
    expect(() => resolveServerOptions({ singleSignOn })).toThrow(words);
  });

  it('P13 are refused without authentication', () => {
    expect(() => resolveServerOptions({ authentication: 'none', singleSignOn: signOn })).toThrow(
      'server.singleSignOn is set and server.authentication is "none"',
    );
  });
});

describe('a base path', () => {
  it('P13 is the prefix of every request, and probes need none', async () => {
    const server = await serveDatabase(db, { basePath: '/ops/waybill' });
    const ask = server.with({});
    expect(await ask('GET', '/ops/waybill?x=1')).toMatchObject({ status: 308 });
    const { headers } = await ask('GET', '/ops/waybill');
    expect(headers.get('location')).toBe('/ops/waybill/');
    const page = await ask('GET', '/ops/waybill/');
    expect(page.headers.get('content-type')).toContain('text/html');
    const reader = await server.as('read');
    for (const path of ['/ops/waybill/api/session', '/api/session'])
      expect((await reader('GET', path)).body).toMatchObject({ scope: 'read' });
    for (const path of ['/ops/waybill/readyz', '/readyz'])
      expect((await ask('GET', path)).body).toEqual({ ready: true });
    expect((await reader('GET', '/ops/waybillapi/session')).body).toHaveProperty('text');
  });

  it.each(['waybill', '/waybill/', '/', '/a//b', '/a b', '/a?b'])(
    'P13 %j is refused',
    (basePath) => {
      expect(() => resolveServerOptions({ basePath })).toThrow(
        /^server\.basePath is .*: give a path such as \/waybill/,
      );
    },
  );
});
