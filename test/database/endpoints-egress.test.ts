// The way to endpoints: through the proxy and with the client certificate of the relay's settings, and with a login of
// each endpoint, which is sealed and never shown.

import { randomBytes } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { createEndpoints } from '../../src/features/endpoints/endpoints.js';
import { readEndpoint } from '../../src/features/endpoints/database.js';
import { openEndpoint, resealed } from '../../src/features/endpoints/secrets.js';
import { parseSecretKeys } from '../../src/core/sealed-secret.js';
import { resolveEndpointOptions } from '../../src/features/endpoints/options.js';
import { startProxy, startTlsReceiver, startTokenServer, tlsFiles } from '../support/egress.js';
import {
  addEndpoint,
  endpointSettings,
  endpointsOf,
  setKey,
  startEndpointRelay,
  startReceiver,
  testKey,
} from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, openDatabase, sendOne, untilPlaces } from '../support/relay.js';
import { serve } from '../support/relay-partner.js';
import { serveDatabase } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const password = 'the password of the endpoint';
const basic = { type: 'basic', user: 'waybill', password } as const;
const clientSecret = 'the secret of the client';

async function everythingStored(): Promise<string> {
  const { rows } = await db.query(
    `SELECT (SELECT json_agg(e) FROM ${db.quoted}.endpoints e) AS endpoints,
            (SELECT json_agg(a) FROM ${db.quoted}.attempts a) AS attempts,
            (SELECT json_agg(a) FROM ${db.quoted}.operator_actions a) AS actions`,
  );
  return JSON.stringify(rows);
}

describe('the settings of all endpoints', () => {
  it('send deliveries through the proxy, to the checked address, with the client certificate', async () => {
    const tls = tlsFiles();
    const proxy = await startProxy();
    const { port, clients } = await startTlsReceiver(tls);
    await startEndpointRelay(db, { endpoints: { ...endpointSettings, proxy: proxy.url, tls } });
    const { name } = await addEndpoint(db, {
      url: `https://127.0.0.1:${port}/hook`,
      topics: ['tunnelled'],
    });
    await sendOne(db, { topic: 'tunnelled' });
    await untilPlaces(db, name, { delivered: 1 });
    expect(proxy.targets).toEqual([`127.0.0.1:${port}`]);
    expect(clients).toEqual(['localhost']);
  });

  it('do not show the address of a proxy that fails in attempts, which customers can read', async () => {
    const receiver = await startReceiver();
    const proxy = 'http://u:secret@127.0.0.1:1';
    await startEndpointRelay(db, { endpoints: { ...endpointSettings, proxy } });
    const { name } = await addEndpoint(db, { url: receiver.url, topics: ['unproxied'] });
    const id = await sendOne(db, { topic: 'unproxied' });
    const [attempt] = await waitFor(
      async () => {
        const attempts = await attemptsOf(db, id, name);
        return attempts.length > 0 && attempts;
      },
      { what: 'an attempt' },
    );
    expect(JSON.stringify(attempt)).toContain('the proxy cannot be reached (ECONNREFUSED)');
    expect(JSON.stringify(attempt)).not.toMatch(/secret|127\.0\.0\.1:1\b/);
  });

  it('are checked when the relay is made', () => {
    const refused = (options: object) => () => resolveEndpointOptions(options);
    expect(refused({ proxy: 'proxy:3128' })).toThrow('endpoints.proxy is "proxy:…"');
    expect(refused({ proxy: undefined })).toThrow('endpoints.proxy is undefined');
    expect(refused({ tls: { cert: 'a', key: 'b' } })).toThrow('endpoints.tls.cert is "…"');
    expect(refused({ tls: { servername: 'a' } })).toThrow('each endpoint has its own name');
    expect(refused({ auth: basic })).toThrow('endpoints.auth is not an option');
    const { settings } = resolveEndpointOptions({ proxy: 'http://u:secret@proxy' });
    expect(JSON.stringify(settings)).not.toContain('secret');
  });
});

describe('the login of an endpoint', () => {
  it('is sent with each request, can be changed and removed, and is stored sealed', async () => {
    const receiver = await startReceiver();
    const relay = await startEndpointRelay(db);
    const { name } = await addEndpoint(db, {
      url: receiver.url,
      topics: ['basic'],
      headers: { 'x-own': 'kept' },
      auth: basic,
    });
    const sent = async () => (await receiver.has(await sendOne(db, { topic: 'basic' }))).headers;
    const headerOf = (word: string) => `Basic ${Buffer.from(`waybill:${word}`).toString('base64')}`;
    expect(await sent()).toMatchObject({ authorization: headerOf(password), 'x-own': 'kept' });
    const endpoints = endpointsOf(db);
    const changed = async (count: number) =>
      waitFor(
        () => relay.of('endpoints_changed').filter((each) => each.changed > 0).length >= count,
        {
          what: `change ${count}`,
        },
      );
    await endpoints.change(db.pool, { name }, { auth: { ...basic, password: 'another one' } });
    await changed(1);
    expect(await sent()).toMatchObject({ authorization: headerOf('another one') });
    await endpoints.change(db.pool, { name }, { auth: null });
    await changed(2);
    expect(await sent()).not.toHaveProperty('authorization');
    expect(await everythingStored()).not.toMatch(new RegExp(`${password}|another one|waybill:`));
  });

  it('replaces a header that was given before it', async () => {
    const receiver = await startReceiver();
    await startEndpointRelay(db);
    const { name } = await addEndpoint(db, {
      url: receiver.url,
      topics: ['two'],
      headers: { Authorization: 'Bearer old-and-forgotten' },
    });
    await endpointsOf(db).change(db.pool, { name }, { auth: basic });
    const { headers } = await receiver.has(await sendOne(db, { topic: 'two' }));
    expect(headers.authorization).toMatch(/^Basic \S+$/);
  });

  it('may be OAuth 2: endpoints with the same client share a token, also after a change', async () => {
    const receiver = await startReceiver();
    const tokens = await startTokenServer();
    const relay = await startEndpointRelay(db);
    const auth = { type: 'oauth2', tokenUrl: tokens.url, clientId: 'a', clientSecret } as const;
    const one = await addEndpoint(db, { url: receiver.url, topics: ['oauth'], auth });
    const other = await addEndpoint(db, { url: `${receiver.url}/b`, topics: ['oauth'], auth });
    for (let n = 0; n < 3; n += 1) await sendOne(db, { topic: 'oauth' });
    for (const { name } of [one, other]) await untilPlaces(db, name, { delivered: 3 });
    await endpointsOf(db).change(db.pool, { name: one.name }, { url: `${receiver.url}/c` });
    await waitFor(() => relay.of('endpoints_changed').some((each) => each.changed > 0), {
      what: 'the change',
    });
    await sendOne(db, { topic: 'oauth' });
    await untilPlaces(db, one.name, { delivered: 4 });
    expect(tokens.requests).toHaveLength(1);
    expect(new Set(receiver.requests.map(({ headers }) => headers.authorization))).toEqual(
      new Set(['Bearer token-1-of-the-token-server']),
    );
    expect(await everythingStored()).not.toMatch(new RegExp(`${clientSecret}|token-1-of`));
    expect(JSON.stringify(relay.events)).not.toMatch(new RegExp(`${clientSecret}|token-1-of`));
  });

  it('does not limit the connections to endpoints at the origin of its token server', async () => {
    const held: (() => void)[] = [];
    const { url } = await serve((request, response) => {
      request.resume();
      if (request.url === '/token') response.end(JSON.stringify({ access_token: 'a-token' }));
      else held.push(() => void response.end());
    });
    const receiver = await startReceiver();
    const tokenUrl = new URL('/token', url).href;
    const auth = { type: 'oauth2', tokenUrl, clientId: 'b', clientSecret } as const;
    await startEndpointRelay(db);
    await addEndpoint(db, { url: receiver.url, topics: ['asks'], auth });
    await receiver.has(await sendOne(db, { topic: 'asks' }));
    const { name } = await addEndpoint(db, { url, topics: ['beside'] });
    // an endpoint begins with one call at a time
    await sendOne(db, { topic: 'beside' });
    await waitFor(() => held.length === 1, { what: 'the first call' });
    held[0]?.();
    await untilPlaces(db, name, { delivered: 1 });
    for (let n = 0; n < 2; n += 1) await sendOne(db, { topic: 'beside' });
    await waitFor(() => held.length === 3, { what: 'two calls at once' });
    for (const end of held) end();
    await untilPlaces(db, name, { delivered: 3 });
  });

  it('is shown by its type only, in lists, over HTTP and in SQL', async () => {
    setKey(testKey);
    const ask = await (await serveDatabase(db)).as('operate');
    const url = 'https://example.com/hooks';
    const given = { url, topics: ['*'], tenantId: 'shown', name: 'shown', auth: basic };
    const added = await ask('POST', '/api/endpoints', given);
    expect(added.status).toBe(200);
    const read = await ask('GET', '/api/endpoints/shown');
    expect(read.body).toMatchObject({ auth: { type: 'basic' } });
    const auth = { type: 'oauth2', tokenUrl: url, clientId: 'a', clientSecret };
    const changed = await ask('PATCH', '/api/endpoints/shown', { auth });
    expect(changed.body).toMatchObject({ auth: { type: 'oauth2' } });
    const listed = await endpointsOf(db).list(db.pool, { name: 'shown' });
    expect(listed).toMatchObject([{ auth: { type: 'oauth2' } }]);
    for (const answer of [added, read, changed, listed])
      expect(JSON.stringify(answer)).not.toMatch(new RegExp(`${password}|${clientSecret}|sealed`));
    const removed = await ask('PATCH', '/api/endpoints/shown', { auth: null });
    expect(removed.body).toMatchObject({ auth: null });
  });

  it('is refused without being shown, also when its token server may not be reached', async () => {
    const endpoints = createEndpoints({ schema: db.schema, secretKey: testKey });
    const add = (auth: object, more: object = {}) =>
      endpoints.add(db.pool, {
        url: 'https://example.com',
        topics: ['*'],
        tenantId: null,
        auth: auth as never,
        ...more,
      });
    await expect(add({ ...basic, user: 'a:b' })).rejects.toThrow('endpoint.auth.user is "…"');
    await expect(
      add({ type: 'oauth2', tokenUrl: 'http://10.0.0.1/', clientId: 'a', clientSecret }),
    ).rejects.toThrow('endpoint.auth.tokenUrl is "http://10.0.0.1/…": 10.0.0.1 is not a public');
    await expect(add(basic, { headers: { authorization: 'x' } })).rejects.toThrow(
      'endpoint.headers.authorization is "…": leave it out: auth sets this header',
    );
    await expect(
      db.query(`SELECT ${db.quoted}.add_endpoint('plain', $1::text::jsonb)`, [
        JSON.stringify({
          url: 'https://example.com',
          topics: ['*'],
          sealedSecret: 'sealed:1:a:b',
          auth: { type: 'basic', sealed: 'plain' },
        }),
      ]),
    ).rejects.toThrow('auth is not sealed, or of an unknown type');
  });

  it('is bound to its endpoint, sealed anew with another key, and deleted with the endpoint', async () => {
    const { name } = await addEndpoint(db, { url: 'https://example.com/a', auth: basic });
    const database = openDatabase(db);
    const row = await readEndpoint(database, name);
    if (row === undefined) throw new Error('there is no endpoint');
    const newKey = randomBytes(32).toString('base64');
    const keys = parseSecretKeys(`${newKey},${testKey}`) ?? [];
    const parts = resealed(keys, row);
    if (parts === null) throw new Error('nothing was sealed');
    const opened = openEndpoint(keys.slice(0, 1), { name, ...parts });
    expect(opened.auth).toEqual(basic);
    expect(() => openEndpoint(keys, { ...row, name: 'another', secrets: [] })).toThrow(
      'cannot be opened',
    );
    await endpointsOf(db).remove(db.pool, { name });
    const { rows } = await db.query(
      `SELECT e.auth FROM ${db.quoted}.endpoints e JOIN ${db.quoted}.destinations d ON d.id = e.destination_id WHERE d.name = $1`,
      [name],
    );
    expect(rows).toEqual([{ auth: null }]);
  });
});
