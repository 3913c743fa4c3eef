// Idempotency keys over HTTP: a request that is repeated with the same key is done once and has the same answer, also
// when several come at the same time, and when the server's connection breaks in the middle.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { addEndpoint, setKey, testKey } from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import type { Answer, TestServer } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const url = 'https://example.com/hooks';

type Keyed = (path: string, body?: object, key?: string) => Promise<Answer>;

/** Sends requests with a token and a key. */
function keyed(server: TestServer, token: string, usual: string = randomUUID()): Keyed {
  return (path, body = {}, key = usual) =>
    server.with({ authorization: `Bearer ${token}`, 'idempotency-key': key })('POST', path, body);
}

async function client(scope: 'operate' | 'read' = 'operate', tenantId?: string): Promise<Keyed> {
  setKey(testKey);
  const server = await serveDatabase(db);
  return keyed(server, await server.token(scope, tenantId));
}

async function endpointsOfTenant(tenantId: string): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.endpoints WHERE tenant_id = $1`,
    [tenantId],
  );
  return rows[0]?.count ?? 0;
}

/** Holds a request at its last statement for a moment, so that what runs too early fails. */
async function beforeCommit<T>(request: () => Promise<T>): Promise<T> {
  await db.query(`CREATE TABLE IF NOT EXISTS gate AS SELECT 1 AS one;
    CREATE OR REPLACE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
      'BEGIN PERFORM FROM public.gate FOR UPDATE; RETURN NEW; END';
    CREATE OR REPLACE TRIGGER gate BEFORE UPDATE ON ${db.quoted}.kept_answers
      FOR EACH ROW EXECUTE FUNCTION pass_gate()`);
  const keeper = await db.pool.connect();
  try {
    await keeper.query('BEGIN; SELECT FROM gate FOR UPDATE');
    const answer = request();
    await waitFor(
      async () => {
        const { rows } = await db.query(
          `SELECT FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%keep_answer%'`,
        );
        return rows.length > 0;
      },
      { what: 'the request before its commit' },
    );
    await keeper.query('COMMIT');
    return await answer;
  } finally {
    await keeper.query('ROLLBACK');
    keeper.release();
    await db.query(`DROP TRIGGER gate ON ${db.quoted}.kept_answers`);
  }
}

async function kept(): Promise<string> {
  const { rows } = await db.query(`SELECT * FROM ${db.quoted}.kept_answers`);
  return JSON.stringify(rows);
}

describe('the same key', () => {
  it('W2 gets the same answer for the same request, with the same secret, and adds one endpoint', async () => {
    const post = await client();
    const body = { url, topics: ['*'], tenantId: 'once', headers: { a: '1', b: '2' } };
    const first = await post('/api/endpoints', body);
    expect(first).toMatchObject({
      status: 200,
      body: { secret: expect.stringMatching(/^whsec_/) as string },
    });
    expect(first.headers.get('idempotency-replayed')).toBeNull();
    const again = await post('/api/endpoints', {
      tenantId: 'once',
      headers: { b: '2', a: '1' },
      topics: ['*'],
      url,
    });
    expect(again.body).toEqual(first.body);
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([200, 'true']);
    expect(await endpointsOfTenant('once')).toBe(1);
    expect((await post('/api/endpoints', body, randomUUID())).body).not.toEqual(first.body);
    expect(await endpointsOfTenant('once')).toBe(2);
  });

  it('W2 is refused for another body or another route, and nothing is done', async () => {
    const post = await client();
    const body = { url, topics: ['*'], tenantId: 'other' };
    const { name } = (await post('/api/endpoints', body)).body;
    const words = {
      error: 'this Idempotency-Key was used for another request: make a new key for each request',
    };
    for (const answer of [
      await post('/api/endpoints', { ...body, topics: ['user.*'] }),
      await post(`/api/endpoints/${String(name)}/rotate`),
      await post('/api/tenant-tokens', { tenantId: 'other' }),
    ])
      expect(answer).toMatchObject({ status: 422, body: words });
    expect(await endpointsOfTenant('other')).toBe(1);
  });

  it('W2 adds one endpoint for requests that come at the same time, and all get the same answer', async () => {
    const post = await client();
    const body = { url, topics: ['*'], tenantId: 'at once' };
    const answers = await Promise.all(
      Array.from({ length: 12 }, () => post('/api/endpoints', body)),
    );
    expect(new Set(answers.map((answer) => JSON.stringify(answer.body))).size).toBe(1);
    expect(answers.map(({ status }) => status)).toEqual(Array(12).fill(200));
    expect(await endpointsOfTenant('at once')).toBe(1);
  });

  it('W2 can be used again after an error, which is not kept', async () => {
    const post = await client();
    const body = { url, topics: ['*'], tenantId: 'again', name: 'again' };
    await addEndpoint(db, { url, name: 'again', tenantId: 'again' });
    expect((await post('/api/endpoints', body)).status).toBe(409);
    expect((await post('/api/endpoints', { ...body, url: 'nonsense' })).status).toBe(400);
    expect((await post('/api/endpoints', { ...body, name: 'other' })).status).toBe(200);
  });

  it('W2 is done once if the connection to the database breaks in the middle', async () => {
    const post = await client();
    const body = { url, topics: ['*'], tenantId: 'broken' };
    const blocker = await db.pool.connect();
    try {
      await blocker.query(`BEGIN; LOCK TABLE ${db.quoted}.endpoints IN ACCESS EXCLUSIVE MODE`);
      const first = post('/api/endpoints', body);
      const { rows } = await waitFor(
        async () => {
          const found = await db.query(
            `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
              WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%add_endpoint%'`,
          );
          return found.rows.length > 0 && found;
        },
        { what: 'the request at its lock' },
      );
      expect(rows).toHaveLength(1);
      expect((await first).status).toBe(503);
    } finally {
      await blocker.query('ROLLBACK');
      blocker.release();
    }
    const answers = [await post('/api/endpoints', body), await post('/api/endpoints', body)];
    expect(answers[0]?.body).toEqual(answers[1]?.body);
    expect(await endpointsOfTenant('broken')).toBe(1);
  });

  it(
    'W2 is answered with 409 while a transaction holds it for long',
    { timeout: 30_000 },
    async () => {
      setKey(testKey);
      const server = await serveDatabase(db);
      const post = keyed(server, await server.token('operate', 'slow'));
      const blocker = await db.pool.connect();
      try {
        await blocker.query(`BEGIN; SET LOCAL waybill.tenant_id = 'slow'`);
        await blocker.query(`SELECT ${db.quoted}.begin_request('x', sha256('held'::bytea))`);
        expect(await post('/api/endpoints', { url, topics: ['*'] }, 'held')).toMatchObject({
          status: 409,
          body: { error: expect.stringContaining('is still being handled') as string },
        });
      } finally {
        await blocker.query('ROLLBACK');
        blocker.release();
      }
    },
  );
});

describe('keys', () => {
  it('W2 belong to a tenant: its next token can repeat a request, other tenants and tokens cannot', async () => {
    setKey(testKey);
    const server = await serveDatabase(db);
    const operator = await server.as('operate');
    const tokenOf = async (tenantId: string) => {
      const { body } = await operator('POST', '/api/tenant-tokens', { tenantId });
      return String(body['token']);
    };
    const body = { url, topics: ['*'] };
    const key = 'the same key';
    expect(await keyed(server, await tokenOf('a'))('/api/endpoints', body, key)).toMatchObject({
      status: 400,
    });
    const ask = async (token: string) =>
      (await keyed(server, token, 'the-same-key')('/api/endpoints', body)).body['name'];
    const name = await ask(await tokenOf('key a'));
    expect(await ask(await tokenOf('key a'))).toBe(name);
    expect(await ask(await tokenOf('key b'))).not.toBe(name);
    const global = { ...body, tenantId: 'key a' };
    for (let n = 0; n < 2; n += 1) {
      const post = keyed(server, await server.token('operate'), 'the-same-key');
      expect((await post('/api/endpoints', global)).body['name']).not.toBe(name);
    }
    expect(await endpointsOfTenant('key a')).toBe(3);
  });

  it('W2 are new again after a day, and old ones are deleted', async () => {
    const post = await client('operate', 'expiring');
    const first = await post('/api/endpoints', { url, topics: ['*'] });
    await db.query(
      `UPDATE ${db.quoted}.kept_answers SET made_at = made_at - interval '23 hours' WHERE owner = 'tenant expiring'`,
    );
    expect((await post('/api/endpoints', { url, topics: ['*'] })).body).toEqual(first.body);
    await db.query(
      `UPDATE ${db.quoted}.kept_answers SET made_at = made_at - interval '1 hour 1 second'`,
    );
    const next = await post('/api/endpoints', { url, topics: ['*'] });
    expect(next.body['name']).not.toBe(first.body['name']);
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.kept_answers WHERE made_at < clock_timestamp() - interval '1 day'`,
    );
    expect(rows).toEqual([]);
  });

  it('W2 keep answers sealed and bound to their key: the database has no secret', async () => {
    const post = await client();
    const body = { url, topics: ['*'], tenantId: 'sealed', auth: undefined };
    const made = await post('/api/endpoints', body);
    const rotated = await post(`/api/endpoints/${String(made.body['name'])}/rotate`, {}, 'r1');
    const token = await post('/api/tenant-tokens', { tenantId: 'sealed' }, 't1');
    expect([made, rotated, token].map(({ status }) => status)).toEqual([200, 200, 200]);
    const stored = await kept();
    for (const secret of [made.body['secret'], rotated.body['secret'], token.body['token']])
      expect(stored).not.toContain(String(secret));
    await db.query(
      `UPDATE ${db.quoted}.kept_answers SET answer = (SELECT answer FROM ${db.quoted}.kept_answers WHERE key = sha256('t1'::bytea))
        WHERE key = sha256('r1'::bytea)`,
    );
    const moved = await post(`/api/endpoints/${String(made.body['name'])}/rotate`, {}, 'r1');
    expect(moved).toMatchObject({ status: 409 });
    expect(JSON.stringify(moved.body)).not.toContain(String(token.body['token']));
  });

  it('W2 need the key of the server', async () => {
    const post = await client();
    setKey(null);
    expect(await post('/api/endpoints/x/test')).toMatchObject({
      status: 503,
      body: { error: expect.stringContaining('WAYBILL_SECRET_KEY is not set') as string },
    });
  });

  it('W2 are refused where they would do nothing, and when they are malformed', async () => {
    const post = await client();
    expect(await post('/api/retrying/retry')).toMatchObject({
      status: 400,
      body: { error: '/api/retrying/retry takes no Idempotency-Key: leave it out' },
    });
    for (const key of ['', 'a b', 'x'.repeat(256)])
      expect([key, (await post('/api/endpoints/x/test', {}, key)).status]).toEqual([key, 400]);
  });
});

describe('routes with a key', () => {
  it('W2 send one test and start one replay, which runs after the commit', async () => {
    const post = await client();
    const { name } = await addEndpoint(db, { url, tenantId: 'replayed', topics: ['*'] });
    const id = await sendOne(db, { topic: 'a', tenantId: 'replayed' });
    const test = `/api/endpoints/${name}/test`;
    expect((await post(test, {}, 't')).body).toEqual((await post(test, {}, 't')).body);
    await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [name]);
    const since = new Date(Date.now() - 60_000).toISOString();
    const replay = () => post(`/api/endpoints/${name}/replay`, { since }, 'r');
    const replays = [await beforeCommit(replay), await replay()];
    expect(replays[0]?.body).toEqual(replays[1]?.body);
    await waitFor(
      async () => {
        const { rows } = await db.query<{ state: string }>(
          `SELECT state FROM ${db.quoted}.replays WHERE id = $1`,
          [replays[0]?.body['id']],
        );
        return rows[0]?.state === 'done';
      },
      { what: 'the end of the replay' },
    );
    expect(id).toBeTruthy();
  });

  it('W2 resend one message once', async () => {
    const post = await client('operate', 'resent');
    const { name } = await addEndpoint(db, { url, tenantId: 'resent', topics: ['*'] });
    const id = await sendOne(db, { topic: 'a', tenantId: 'resent' });
    await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [name]);
    const path = `/api/endpoints/${name}/messages/${id}/resend`;
    const first = await post(path);
    expect(first).toMatchObject({ status: 200, body: { messageId: id, status: 'discarded' } });
    expect((await post(path)).body).toEqual(first.body);
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.replays r JOIN ${db.quoted}.destinations d ON d.id = r.destination_id WHERE d.name = $1`,
      [name],
    );
    expect(rows).toHaveLength(1);
  });
});
