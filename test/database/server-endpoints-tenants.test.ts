// Tokens of one tenant: they read and change the endpoints of their own tenant, and those of others do not exist for
// them, by any route.

import { describe, expect, it } from 'vitest';

import { describedRoutes } from '../support/api-routes.js';
import { addEndpoint, setKey, testKey } from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, sendOne } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { startReplay } from '../../src/features/replays/database.js';
import type { Route } from '../../src/server/route.js';

const db = testDatabase();
const url = 'https://example.com/hooks';
const routes = describedRoutes().filter(({ path }) => path.startsWith('/api/endpoints/{name}'));

/** A valid body of a route. */
function bodyOf({ method, path }: Route): unknown {
  if (method === 'GET') return undefined;
  if (method === 'PATCH') return { description: 'changed' };
  return /\/(replay|recover)$/.test(path) ? { since: '2026-01-31T08:00:00Z' } : {};
}

/** Everything that a change of an endpoint would change. */
async function stored(): Promise<unknown> {
  const { rows } = await db.query(
    `SELECT (SELECT jsonb_agg(to_jsonb(e) ORDER BY e.destination_id) FROM ${db.quoted}.endpoints e) AS endpoints,
            (SELECT jsonb_agg(to_jsonb(d) ORDER BY d.id) FROM ${db.quoted}.destinations d) AS destinations,
            (SELECT jsonb_agg(to_jsonb(d) ORDER BY d.message_id) FROM ${db.quoted}.deliveries d) AS deliveries,
            (SELECT count(*) FROM ${db.quoted}.messages) AS messages,
            (SELECT count(*) FROM ${db.quoted}.operator_actions) AS actions,
            (SELECT count(*) FROM ${db.quoted}.replays) AS replays`,
  );
  return rows;
}

describe('a token of one tenant', () => {
  it('W2 P13 is let in everywhere, to read or to change', () => {
    for (const { forTenants } of routes) expect(forTenants).toBe(true);
    expect(routes.length).toBeGreaterThanOrEqual(12);
  });

  it.each(routes.map((route) => [`${route.method} ${route.path}`, route] as const))(
    'W2 P13 %s answers for its own endpoint, and 404 for those of others without changing anything',
    async (_title, route) => {
      setKey(testKey);
      const topics = ['*'];
      const own = await addEndpoint(db, { url, topics, tenantId: 'acme' });
      const foreign = await addEndpoint(db, { url, topics, tenantId: 'globex' });
      const everybodys = await addEndpoint(db, { url, topics, tenantId: null });
      const mine = await sendOne(db, { topic: 'order.made', tenantId: 'acme' });
      const theirs = await sendOne(db, { topic: 'order.made', tenantId: 'globex' });
      const server = await serveDatabase(db);
      const ask = await server.as('operate', 'acme');
      const since = new Date();
      const filter = { destination: own.name, tenantId: 'acme', since };
      const replay = route.path.includes('{replay}')
        ? (await startReplay(openDatabase(db), filter, 1, 'test')).id
        : '';
      const pathOf = (name: string, id: string) =>
        route.path.replace('{name}', name).replace('{id}', id).replace('{replay}', replay);
      const at = (name: string, id: string) => ask(route.method, pathOf(name, id), bodyOf(route));
      const before = await stored();
      for (const { name } of [foreign, everybodys])
        for (const id of [mine, theirs]) {
          const { status, body } = await at(name, id);
          expect([status, body['error']]).toEqual([404, expect.stringContaining(name)]);
        }
      const isOfMessage = route.path.includes('{id}');
      expect(isOfMessage ? (await at(own.name, theirs)).status : 404).toBe(404);
      expect(await stored()).toEqual(before);
      const { status, body } = await at(own.name, mine);
      expect(status, JSON.stringify(body)).toBe(200);
      expect(JSON.stringify(body)).not.toContain('globex');
    },
  );

  it('W2 P13 lists its own endpoints only, whatever it asks for', async () => {
    const own = await addEndpoint(db, { url: 'https://own.example', tenantId: 'lister' });
    const foreign = await addEndpoint(db, { url: 'https://foreign.example', tenantId: 'globex' });
    const ask = await (await serveDatabase(db)).as('read', 'lister');
    for (const query of ['', '?tenantId=lister', '?state=enabled', '?search=https', '?limit=1']) {
      const { body } = await ask('GET', `/api/endpoints${query}`);
      expect(body).toMatchObject({ endpoints: [{ name: own.name, tenantId: 'lister' }] });
    }
    const found = await ask('GET', `/api/endpoints?search=${foreign.name}`);
    expect(found.body).toEqual({ endpoints: [], next: null });
  });

  it('W2 P13 adds endpoints of its tenant only', async () => {
    setKey(testKey);
    const ask = await (await serveDatabase(db)).as('operate', 'acme');
    const made = await ask('POST', '/api/endpoints', { url, topics: ['*'] });
    expect((await ask('GET', `/api/endpoints/${String(made.body['name'])}`)).body).toMatchObject({
      tenantId: 'acme',
    });
    const before = await stored();
    for (const tenantId of ['globex', null])
      expect(await ask('POST', '/api/endpoints', { url, topics: ['*'], tenantId })).toMatchObject({
        status: 403,
        body: { error: expect.stringContaining('the tenant acme only') as string },
      });
    expect(await stored()).toEqual(before);
  });

  it('P13 with the scope read changes nothing', async () => {
    const { name } = await addEndpoint(db, { url, tenantId: 'reader' });
    const ask = await (await serveDatabase(db)).as('read', 'reader');
    expect((await ask('GET', `/api/endpoints/${name}`)).status).toBe(200);
    expect((await ask('POST', `/api/endpoints/${name}/disable`)).status).toBe(403);
    expect((await ask('DELETE', `/api/endpoints/${name}`)).status).toBe(403);
  });
});
