// Endpoints in the database: what is stored, which messages each gets, and that a configuration file does not change
// them. Delivery is tested in endpoints-relay.test.ts.

import { randomBytes } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { openEndpoint } from '../../src/features/endpoints/secrets.js';
import { parseSecretKeys } from '../../src/core/sealed-secret.js';
import { readEndpoint } from '../../src/features/endpoints/database.js';
import { addEndpoint, endpointsOf, testKey } from '../support/endpoints.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { makeRelay, openDatabase, places, send, sendOne } from '../support/relay.js';

const db = testDatabase();
const endpoints = endpointsOf(db);
const url = 'https://example.com/hooks';

/** Names of 4 bytes. */
function headersOf(count: number, valueBytes: number): Record<string, string> {
  const names = Array.from({ length: count }, (_, at) => `x-${at + 10}`);
  return Object.fromEntries(names.map((name) => [name, 'v'.repeat(valueBytes)]));
}

async function routesOf(name: string): Promise<unknown[]> {
  const { rows } = await db.query(
    `SELECT r.topic, r.namespace, r.tenant_id FROM ${db.quoted}.routes r JOIN ${db.quoted}.destinations d ON d.id = r.destination_id
      WHERE d.name = $1 ORDER BY r.topic`,
    [name],
  );
  return rows;
}

async function everythingKept(): Promise<string> {
  const { rows } = await db.query<{ text: string }>(
    `SELECT (SELECT jsonb_agg(to_jsonb(e)) FROM ${db.quoted}.endpoints e)::text || (SELECT jsonb_agg(to_jsonb(a)) FROM ${db.quoted}.operator_actions a)::text AS text`,
  );
  return only(rows).text;
}

describe('an endpoint', () => {
  it('W2 is a destination with its own routes, and shows a fingerprint instead of its secret', async () => {
    const made = await addEndpoint(db, {
      url,
      topics: ['user.*', 'order.paid'],
      tenantId: 'acme',
      namespace: 'shop',
      description: 'the first',
    });
    expect(made.secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(made.name).toMatch(/^ep_[0-9a-f]{24}$/);
    expect(await endpoints.list(db.pool, { name: made.name })).toMatchObject([
      {
        url,
        topics: ['user.*', 'order.paid'],
        tenantId: 'acme',
        namespace: 'shop',
        description: 'the first',
        enabled: true,
        fingerprints: [made.fingerprint],
        waiting: 0,
        dead: 0,
      },
    ]);
    expect(await routesOf(made.name)).toEqual([
      { topic: 'order.paid', namespace: 'shop', tenant_id: 'acme' },
      { topic: 'user.*', namespace: 'shop', tenant_id: 'acme' },
    ]);
  });

  it('nothing that is stored contains its secret or its headers', async () => {
    const headers = { authorization: 'Bearer sehr-geheim' };
    const made = await addEndpoint(db, { url, headers, tenantId: 'acme' });
    const rotated = await endpoints.rotate(db.pool, { name: made.name });
    const kept = await everythingKept();
    for (const secret of [made.secret, rotated.secret, 'sehr-geheim', 'Bearer'])
      expect(kept).not.toContain(secret.replace('whsec_', ''));
    const row = await readEndpoint(openDatabase(db), made.name);
    if (row === undefined) throw new Error('not there');
    expect(openEndpoint(parseSecretKeys(testKey) ?? [], row)).toEqual({
      secrets: [rotated.secret, made.secret],
      headers,
      query: {},
    });
    const other = parseSecretKeys(randomBytes(32).toString('base64')) ?? [];
    expect(() => openEndpoint(other, row)).toThrow(
      expect.objectContaining({ reason: 'unknown_key' }),
    );
  });

  it('headers of the largest size are stored, whatever their characters', async () => {
    // each takes two bytes in JSON
    const headers = Object.fromEntries(
      Object.keys(headersOf(20, 0)).map((name) => [name, '"'.repeat(405)]),
    );
    const { name } = await addEndpoint(db, { url, headers });
    const row = await readEndpoint(openDatabase(db), name);
    if (row === undefined) throw new Error('not there');
    expect(openEndpoint(parseSecretKeys(testKey) ?? [], row).headers).toEqual(headers);
  });

  it('the database refuses an unencrypted secret', async () => {
    await expect(
      db.query(`SELECT ${db.quoted}.add_endpoint('plain', $1)`, [
        { url, topics: ['*'], sealedSecret: 'whsec_plain', fingerprint: 'f' },
      ]),
    ).rejects.toThrow(/not sealed/);
    const { name } = await addEndpoint(db, { url });
    await expect(
      db.query(`SELECT ${db.quoted}.rotate_endpoint($1, 'whsec_plain', 'f')`, [name]),
    ).rejects.toThrow(/not sealed/);
    await expect(
      db.query(`SELECT ${db.quoted}.change_endpoint($1, '{"sealedHeaders": "plain"}')`, [name]),
    ).rejects.toThrow(/not sealed/);
  });

  it.each([
    ['credentials in the address', { url: 'https://a:b@example.com/' }, /credentials into headers/],
    ['an address of another kind', { url: 'ftp://example.com' }, /http:\/\/ or https:\/\//],
    ['no address', { url: 'example.com' }, /"…": give an http/],
    ['no topic', { topics: [] }, /endpoint.topics is \[\]/],
    ['an invalid topic', { topics: ['user.'] }, /endpoint.topics\[0\] is "user."/],
    [
      'a missing tenant',
      { tenantId: undefined as unknown as string },
      /null for the messages of all/,
    ],
    ['a private address', { url: 'http://10.1.2.3/' }, /endpoint.url is "http:\/\/10.1.2.3\/…"/],
    ['metadata', { url: 'http://169.254.169.254/' }, /endpoint.url is/],
    ['an invalid shape', { body: 'xml' as 'payload' }, /endpoint.body is "xml"/],
    ['an empty tenant', { tenantId: '' }, /endpoint.tenantId is ""/],
    ['a short secret', { secret: 'whsec_c2hvcnQ=' }, /the base64 of 24 to 64 bytes/],
    ['a header that Waybill sets', { headers: { 'webhook-id': 'x' } }, /headers.webhook-id/],
    ['too many headers', { headers: headersOf(21, 1) }, /headers has 21 headers: give at most 20/],
    ['long headers', { headers: headersOf(20, 406) }, /has 8200 bytes .*: give at most 8192/],
    ['a long address', { url: `${url}${'/a'.repeat(1024)}` }, /at most 2048 bytes/],
    ['a name with a space', { name: 'a b' }, /endpoint.name is "a b"/],
  ])('%s is refused before the database is asked', async (_what, wrong, words) => {
    await expect(
      endpoints.add(db.pool, { url, topics: ['*'], tenantId: null, ...wrong }),
    ).rejects.toThrow(words);
  });

  it.each([
    ['credentials', { url: 'https://a:b@example.com/' }, /without user and password/],
    ['topics', { topics: ['user.', '*'] }, /topics has "user."/],
    ['tenantId', { tenantId: '' }, /tenantId ""/],
    ['namespace', { namespace: 'a b' }, /namespace "a b"/],
    ['body', { body: 'xml' }, /body "xml" is unknown/],
    ['unknown', { colour: 'red' }, /colour is not a field of an endpoint/],
    [
      'sealedHeaders',
      { sealedHeaders: `sealed:1:a:${'b'.repeat(24_566)}` },
      /sealed headers have 24577 bytes, and at most 24576 are allowed/,
    ],
    ['sealedSecret', { sealedSecret: `sealed:1:a:${'b'.repeat(1014)}` }, /more than 1024 bytes/],
    ['url', { url: `${url}/${'a'.repeat(2048)}` }, /at most 2048 bytes/],
  ])('SQL refuses the same: %s', async (_what, wrong, words) => {
    const endpoint = {
      url,
      topics: ['*'],
      sealedSecret: 'sealed:1:a:b',
      fingerprint: 'f',
      ...wrong,
    };
    await expect(
      db.query(`SELECT ${db.quoted}.add_endpoint('wrong', $1)`, [endpoint]),
    ).rejects.toThrow(words);
  });

  it('a name is used once: not twice, not after a removal, not for a destination of a file', async () => {
    await addEndpoint(db, { url, name: 'mine' });
    await expect(addEndpoint(db, { url, name: 'mine' })).rejects.toThrow(/"mine" is taken/);
    await endpoints.remove(db.pool, { name: 'mine' });
    await expect(addEndpoint(db, { url, name: 'mine' })).rejects.toThrow(/that was removed/);
    await expect(db.query(`SELECT ${db.quoted}.define_destination('mine')`)).rejects.toThrow(
      /taken by an endpoint/,
    );
    await db.query(`SELECT ${db.quoted}.define_destination('of-the-file')`);
    await expect(addEndpoint(db, { url, name: 'of-the-file' })).rejects.toThrow(/is taken/);
  });

  it('W2 gets nothing of another tenant by a move, and nothing after its removal', async () => {
    const from = await addEndpoint(db, { url, topics: ['moved.away'], tenantId: 'globex' });
    const to = await addEndpoint(db, { url, topics: ['elsewhere'], tenantId: 'acme' });
    const own = await addEndpoint(db, { url, topics: ['elsewhere'], tenantId: 'globex' });
    await db.query(`SELECT ${db.quoted}.enqueue('moved.away', tenant_id => 'globex')`);
    const move = (name: string) =>
      db.query<{ moved: number }>(`SELECT ${db.quoted}.move_deliveries($1, $2) AS moved`, [
        from.name,
        name,
      ]);
    await expect(move(to.name)).rejects.toThrow(/an endpoint of the tenant acme/);
    await endpoints.remove(db.pool, { name: to.name });
    await expect(move(to.name)).rejects.toThrow(/an endpoint that was removed/);
    expect((await move(own.name)).rows).toEqual([{ moved: 1 }]);
  });

  it('is part of the transaction that adds it', async () => {
    const name = 'rolled-back';
    await expect(
      db.inTransaction(async (client) => {
        await endpoints.add(client, { url, topics: ['rolled.back'], tenantId: null, name });
        expect(await endpoints.list(client, { name })).toHaveLength(1);
        throw new Error('rolled back');
      }),
    ).rejects.toThrow('rolled back');
    expect(await endpoints.list(db.pool, { name })).toEqual([]);
    expect(await routesOf(name)).toEqual([]);
  });
});

describe('changes', () => {
  it('apply to the named fields only', async () => {
    const { name } = await addEndpoint(db, {
      url,
      topics: ['a', 'b'],
      namespace: 'shop',
      description: 'old',
      tenantId: 'acme',
    });
    await endpoints.change(db.pool, { name }, { topics: ['b', 'c.*'], namespace: null });
    expect(only(await endpoints.list(db.pool, { name }))).toMatchObject({
      url,
      topics: ['b', 'c.*'],
      namespace: null,
      description: 'old',
    });
    expect(await routesOf(name)).toEqual([
      { topic: 'b', namespace: null, tenant_id: 'acme' },
      { topic: 'c.*', namespace: null, tenant_id: 'acme' },
    ]);
    await expect(endpoints.change(db.pool, { name }, {})).rejects.toThrow(/nothing to change/);
    await expect(
      db.query(`SELECT ${db.quoted}.change_endpoint($1, '{"tenantId": "other"}')`, [name]),
    ).rejects.toThrow(/tenantId cannot be changed/);
  });

  it('a rotation keeps the old secret until it is retired, and at most five', async () => {
    const first = await addEndpoint(db, { url });
    const which = { name: first.name };
    const second = await endpoints.rotate(db.pool, which);
    const own = `whsec_${randomBytes(24).toString('base64')}`;
    const third = await endpoints.rotate(db.pool, which, { secret: own });
    expect(third.secret).toBe(own);
    const fingerprints = async () => only(await endpoints.list(db.pool, which)).fingerprints;
    expect(await fingerprints()).toEqual([third, second, first].map((each) => each.fingerprint));
    await endpoints.rotate(db.pool, which);
    const fifth = await endpoints.rotate(db.pool, which);
    await expect(endpoints.rotate(db.pool, which)).rejects.toThrow(/at most 5/);
    expect(await endpoints.retireOldSecrets(db.pool, which)).toBe(4);
    expect(await fingerprints()).toEqual([fifth.fingerprint]);
    expect(await endpoints.retireOldSecrets(db.pool, which)).toBe(0);
  });

  it('with a tenant, only that tenant’s endpoints exist', async () => {
    const { name } = await addEndpoint(db, { url, tenantId: 'acme' });
    const stranger = { name, tenantId: 'other' };
    await expect(endpoints.disable(db.pool, stranger)).rejects.toThrow(/does not exist for tenant/);
    await expect(endpoints.rotate(db.pool, stranger)).rejects.toThrow(/does not exist/);
    await expect(endpoints.change(db.pool, stranger, { url })).rejects.toThrow(/does not exist/);
    await expect(endpoints.remove(db.pool, stranger)).rejects.toThrow(/does not exist/);
    await expect(endpoints.retireOldSecrets(db.pool, stranger)).rejects.toThrow(/does not exist/);
    expect(await endpoints.list(db.pool, { tenantId: 'other' })).toEqual([]);
    const missing = { name, tenantId: undefined } as unknown as { name: string };
    await expect(endpoints.disable(db.pool, missing)).rejects.toThrow(/tenantId is undefined/);
    await expect(endpoints.list(db.pool, missing)).rejects.toThrow(/tenantId is undefined/);
    await endpoints.disable(db.pool, { name, tenantId: 'acme' });
    expect(only(await endpoints.list(db.pool, { tenantId: 'acme', name })).enabled).toBe(false);
  });

  it('a removed endpoint gets nothing more, forgets its secrets, and its pending deliveries stay visible', async () => {
    const { name } = await addEndpoint(db, { url, topics: ['removed'] });
    await sendOne(db, { topic: 'removed' });
    expect(await endpoints.remove(db.pool, { name })).toBe(true);
    await sendOne(db, { topic: 'removed' });
    expect(await places(db, name)).toMatchObject({ waiting: 1 });
    const { rows } = await db.query(
      `SELECT d.configured, e.secrets, e.sealed_headers FROM ${db.quoted}.endpoints e JOIN ${db.quoted}.destinations d ON d.id = e.destination_id WHERE d.name = $1`,
      [name],
    );
    expect(rows).toEqual([{ configured: false, secrets: [], sealed_headers: null }]);
    expect(await endpoints.list(db.pool, { name })).toEqual([]);
    await expect(endpoints.enable(db.pool, { name })).rejects.toThrow(/does not exist/);
    await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [name]);
    expect(await places(db, name)).toMatchObject({ waiting: 0 });
  });
});

describe('routing', () => {
  it('a message of one tenant never becomes a delivery for another’s endpoint', async () => {
    const tenants = ['a', 'b', 'c'];
    const names = new Map<string, string>();
    for (const tenantId of tenants)
      names.set(
        tenantId,
        (await addEndpoint(db, { url, tenantId, topics: ['*', 'shared.topic'] })).name,
      );
    const all = await addEndpoint(db, { url, tenantId: null, topics: ['shared.topic'] });
    await send(db, [
      ...tenants.flatMap((tenantId) => [
        { topic: 'shared.topic', tenantId },
        { topic: 'shared.topic', tenantId, key: 'k' },
      ]),
      { topic: 'shared.topic' },
    ]);
    const { rows } = await db.query(
      `SELECT d.name, w.tenant_id, count(*)::int FROM ${db.quoted}.deliveries w JOIN ${db.quoted}.destinations d ON d.id = w.destination_id
        WHERE d.name = ANY ($1) GROUP BY 1, 2 ORDER BY 2, 1`,
      [[...names.values()]],
    );
    expect(rows).toEqual(
      tenants.map((tenantId) => ({ name: names.get(tenantId), tenant_id: tenantId, count: 2 })),
    );
    expect(await places(db, all.name)).toMatchObject({ waiting: 7 });
  });

  it('the start of a relay with its file does not change endpoints and their routes', async () => {
    const { name } = await addEndpoint(db, { url, topics: ['left.alone'], tenantId: 'acme' });
    const before = await routesOf(name);
    const { relay } = makeRelay(db, { destinations: { filed: handler(() => undefined) } });
    await relay.drain({ maxMs: 5000, maxMessages: 10 });
    expect(await routesOf(name)).toEqual(before);
    const { rows } = await db.query(
      `SELECT origin, configured FROM ${db.quoted}.destinations WHERE name = ANY ($1) ORDER BY origin`,
      [[name, 'filed']],
    );
    expect(rows).toEqual([
      { origin: 'database', configured: true },
      { origin: 'file', configured: true },
    ]);
  });

  it('a file whose destination has the name of an endpoint is refused', async () => {
    await addEndpoint(db, { url, name: 'taken-name', tenantId: 'acme' });
    const { relay } = makeRelay(db, { destinations: { 'taken-name': handler(() => undefined) } });
    await expect(relay.start()).rejects.toThrow(/"taken-name" is taken by an endpoint/);
  });

  it('routes of other tenants are not scanned', async () => {
    const { name } = await addEndpoint(db, { url, topics: ['many.*'], tenantId: 'tenant-1' });
    await db.query(
      `INSERT INTO ${db.quoted}.routes (destination_id, topic, tenant_id)
       SELECT d.id, 'many.' || n, 'tenant-' || n FROM generate_series(2, 4000) n, ${db.quoted}.destinations d WHERE d.name = $1`,
      [name],
    );
    await db.query(`ANALYZE ${db.quoted}.routes`);
    const client = await db.connect();
    const seen: string[] = [];
    client.on('notice', ({ message }) => void seen.push(message ?? ''));
    await client.query(
      `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
       SET auto_explain.log_analyze = on; SET auto_explain.log_timing = off; SET client_min_messages = log`,
    );
    await client.query(`SELECT ${db.quoted}.enqueue('many.thing', tenant_id => 'tenant-1')`);
    await client.end();
    const plan = seen.find((text) => text.includes('routes_by_tenant')) ?? '';
    expect(plan).toContain('routes_by_tenant');
    expect(plan).not.toMatch(/Seq Scan on routes/);
    const removed = [...plan.matchAll(/Rows Removed by Filter: (\d+)/g)].map((match) =>
      Number(match[1]),
    );
    expect(Math.max(0, ...removed)).toBeLessThan(100);
  });
});
