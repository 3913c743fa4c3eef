// Several databases behind one port: each with its API, its page, its tokens and its logins; health and metrics of all
// together.

import { describe, expect, it, onTestFinished } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { addToken } from '../../src/features/tokens/database.js';
import { handler } from '../../src/destinations/handler.js';
import { resolveServerOptions } from '../../src/server/options.js';
import { startShardsServer } from '../../src/server/server.js';
import { Confirmed } from '../../src/features/shards/access.js';
import { Metrics } from '../../src/telemetry/metrics.js';
import { urlAs } from '../support/logins.js';
import { testDatabase } from '../support/postgres.js';
import type { TestDatabase } from '../support/postgres.js';
import { findPromtool, promtool } from '../support/promtool.js';
import { numbered, openDatabase, send, untilPlaces } from '../support/relay.js';
import { makeShardedRelay, shardsOf, wireTo } from '../support/shards.js';
import { silentAddress } from '../support/tcp-proxy.js';

const [eu, us] = [testDatabase(), testDatabase()];

type Options = {
  authentication?: 'tokens' | 'none';
  usUrl?: string;
  isRunning?: (shard: string) => boolean;
  refusal?: (shard: string) => string | undefined;
  metrics?: Map<string, Metrics>;
};

async function serve({
  authentication = 'tokens',
  usUrl = urlAs(us.url, 'test_server'),
  isRunning = () => true,
  refusal = () => undefined,
  metrics = new Map<string, Metrics>(),
}: Options = {}) {
  const open = (url: string, { schema }: TestDatabase) => {
    const database = new Database(resolveDatabaseOptions({ url, schema }), {
      connections: 2,
      applicationName: 'waybill test',
    });
    onTestFinished(() => database.close());
    return database;
  };
  const part = (name: string, database: Database) => ({
    name,
    database,
    metrics: metrics.get(name) ?? new Metrics({ shard: name }),
    isRunning: () => isRunning(name),
    refusal: () => refusal(name),
    drain: () =>
      Promise.resolve({
        processed: 0,
        succeeded: 0,
        failed: 0,
        released: 0,
        finished: true,
        unrouted: 0,
        heldCursors: [],
      }),
  });
  const server = await startShardsServer(resolveServerOptions({ port: 0, authentication }), [
    part('eu', open(urlAs(eu.url, 'test_server'), eu)),
    part('us', open(usUrl, us)),
  ]);
  onTestFinished(() => server.close());
  return (path: string, init?: RequestInit) =>
    fetch(server.url + path, { redirect: 'manual', ...init });
}

async function bearer(db: TestDatabase, scope: 'read' | 'operate' = 'read', tenantId?: string) {
  const name = `test-${Math.random()}`;
  const token = await addToken(
    openDatabase(db),
    { name, scope, ...(tenantId !== undefined && { tenantId }) },
    'test',
  );
  return { name, headers: { authorization: `Bearer ${token}` } };
}

const nowhere = 'postgresql://unknown@127.0.0.1:1/none';

describe('/shards/NAME/', () => {
  it('N9 P13 answers with what is in that database, to tokens of that database', async () => {
    const ask = await serve();
    const [inEu, inUs] = [{ name: 'only-in-eu' }, { name: 'only-in-us' }];
    await eu.query(`SELECT ${eu.quoted}.define_destination('${inEu.name}')`);
    await us.query(`SELECT ${us.quoted}.define_destination('${inUs.name}')`);
    const namesAt = async (shard: string, init: RequestInit) => {
      const answer = await ask(`/shards/${shard}/api/destinations`, init);
      const body = (await answer.json()) as { destinations?: { name: string }[] };
      return { status: answer.status, names: JSON.stringify(body) };
    };
    const [ofEu, ofUs] = [await bearer(eu), await bearer(us)];
    const euAnswer = await namesAt('eu', ofEu);
    expect(euAnswer.status).toBe(200);
    expect(euAnswer.names).toContain(inEu.name);
    expect(euAnswer.names).not.toContain(inUs.name);
    const usAnswer = await namesAt('us', ofUs);
    expect(usAnswer.names).toContain(inUs.name);
    expect(usAnswer.names).not.toContain(inEu.name);
    expect((await namesAt('us', ofEu)).status).toBe(401);
    expect((await ask('/api/destinations', ofEu)).status, 'not at the root').toBe(404);
    expect((await ask('/shards/mars/api/destinations', ofEu)).status).toBe(404);
  });

  it('N9 P13 a login at one shard is not valid at the others, and ends none of theirs', async () => {
    const ask = await serve();
    const logIn = async (shard: string, db: TestDatabase) => {
      const { authorization } = (await bearer(db, 'operate')).headers;
      const answer = await ask(`/shards/${shard}/api/session`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ token: authorization.slice('Bearer '.length) }),
      });
      expect(answer.status).toBe(200);
      return (answer.headers.getSetCookie()[0] ?? '').split(';')[0] ?? '';
    };
    const [ofEu, ofUs] = [await logIn('eu', eu), await logIn('us', us)];
    expect(ofEu.split('=')[0]).not.toBe(ofUs.split('=')[0]);
    const statusOf = async (shard: string, cookie: string) =>
      (await ask(`/shards/${shard}/api/session`, { headers: { cookie } })).status;
    expect(await statusOf('eu', `${ofEu}; ${ofUs}`)).toBe(200);
    expect(await statusOf('us', `${ofEu}; ${ofUs}`)).toBe(200);
    expect(await statusOf('us', ofEu)).toBe(401);
    const ofEuAtUs = ofEu.replace('waybill_session_eu', 'waybill_session_us');
    expect(await statusOf('us', ofEuAtUs)).toBe(401);
  });

  it('N9 has the page with relative addresses; without the last slash the client is redirected', async () => {
    const ask = await serve();
    const led = await ask('/shards/eu');
    expect([led.status, led.headers.get('location')]).toEqual([302, 'eu/']);
    const page = await ask('/shards/eu/');
    expect(page.headers.get('content-type')).toContain('text/html');
    const html = await page.text();
    const [, script = ''] = /<script[^>]+src="([^"]+)"/.exec(html) ?? [];
    expect(script).toMatch(/^\.\/assets\//);
    const loaded = await ask(new URL(script, 'http://x/shards/eu/').pathname);
    expect(loaded.headers.get('content-type')).toContain('javascript');
  });
});

describe('shared routes', () => {
  it('N9 P13 / lists the shards for a token of any of them, as a page and as JSON', async () => {
    const ask = await serve();
    const { authorization } = (await bearer(us)).headers;
    const listed = await ask('/', { headers: { authorization } });
    expect(await listed.json()).toEqual({ count: 2, shards: ['eu', 'us'] });
    const page = await ask('/', { headers: { authorization, accept: 'text/html,*/*' } });
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(await page.text()).toContain('<a href="./shards/us/">us</a>');
  });

  it('N9 P13 a client without a valid token for all tenants gets counts, and no shard names', async () => {
    const ask = await serve({
      isRunning: (shard) => shard === 'eu',
      refusal: (shard) => (shard === 'us' ? 'us is too old' : undefined),
    });
    const strangers: { headers?: Record<string, string> }[] = [
      {},
      { headers: { authorization: 'Bearer wbt_guess' } },
      { headers: { cookie: 'waybill_session_eu=wbs_guess' } },
      await bearer(eu, 'read', 'acme'),
    ];
    for (const stranger of strangers) {
      expect(await (await ask('/', stranger)).json()).toEqual({ count: 2 });
      const ready = await ask('/readyz', stranger);
      expect([ready.status, await ready.json()]).toEqual([
        200,
        { ready: true, shards: { running: 1, refused: 1, waiting: 0 } },
      ]);
      const headers = { ...stranger.headers, accept: 'text/html' };
      for (const path of ['/', '/nowhere', '/healthz', '/metrics'])
        expect(await (await ask(path, { headers })).text()).not.toMatch(/\b(eu|us)\b/);
    }
  });

  it('N9 without authentication, which is for this machine only, names are shown', async () => {
    const ask = await serve({ authentication: 'none', isRunning: (shard) => shard === 'eu' });
    expect(await (await ask('/')).json()).toEqual({ count: 2, shards: ['eu', 'us'] });
    expect(await (await ask('/readyz')).json()).toMatchObject({ names: { eu: true, us: false } });
    expect(await (await ask('/nowhere')).json()).toEqual({
      error: '/nowhere is not here: see /healthz, /readyz, /shards/eu/, /shards/us/',
    });
  });

  it('N9 N13 /healthz is degraded while one is down, and 503 only when all are', async () => {
    const ask = await serve();
    expect(await (await ask('/healthz')).json()).toEqual({
      status: 'ok',
      shards: { ok: 2, degraded: 0, down: 0 },
    });
    const half = await (await serve({ usUrl: nowhere }))('/healthz');
    expect(half.status).toBe(200);
    expect(await half.json()).toEqual({
      status: 'degraded',
      shards: { ok: 1, degraded: 0, down: 1 },
    });
  });

  it('N9 a shard that accepts connections and never answers does not delay the responses for all', async () => {
    const ask = await serve({ usUrl: await silentAddress() });
    const beforeMs = performance.now();
    const token = await bearer(eu);
    const unknown = { headers: { authorization: 'Bearer unknown' } };
    const [health, metrics, refused] = await Promise.all([
      ask('/healthz'),
      ask('/metrics', token),
      ask('/metrics', unknown),
    ]);
    // Prometheus gives up after ten seconds
    expect(performance.now() - beforeMs).toBeLessThan(8000);
    expect(await health.json()).toMatchObject({ status: 'degraded' });
    expect(await metrics.text()).toContain('outbox_database_up{shard="us"} 0');
    expect(refused.status).toBe(503);
  });

  it('N9 P13 /metrics accepts a token of any shard; a wrong one counts as one failed login, a valid one as none', async () => {
    const ask = await serve();
    const [ofEu, ofUs] = [await bearer(eu), await bearer(us)];
    // more than the allowed wrong tokens in a minute
    for (let times = 0; times < 25; times += 1)
      for (const token of [ofEu, ofUs]) expect((await ask('/metrics', token)).status).toBe(200);
    const limited = await bearer(eu, 'read', 'acme');
    for (let times = 0; times < 25; times += 1)
      expect((await ask('/metrics', limited)).status).toBe(403);
    const wrong = { headers: { authorization: 'Bearer wrong' } };
    const statuses: number[] = [];
    for (let times = 0; times < 21; times += 1)
      statuses.push((await ask('/metrics', wrong)).status);
    expect(statuses).toEqual([...Array.from({ length: 20 }, () => 401), 429]);
  });

  it('N9 P13 a token whose own shard is away is remembered; one that the shard has refused since is not', async () => {
    const { proxy, url } = await wireTo(us, 'test_server');
    const ask = await serve({ usUrl: url });
    const [seen, removed, unseen] = [await bearer(us), await bearer(us), await bearer(us)];
    for (const token of [seen, removed]) expect((await ask('/metrics', token)).status).toBe(200);
    await us.query(`DELETE FROM ${us.quoted}.tokens WHERE name = $1`, [removed.name]);
    expect((await ask('/metrics', removed)).status).toBe(401);
    await proxy.leave();
    const answer = await ask('/metrics', seen);
    expect(answer.status).toBe(200);
    const text = await answer.text();
    expect(text).toContain('outbox_database_up{shard="eu"} 1\noutbox_database_up{shard="us"} 0\n');
    expect(text).toContain('outbox_partitions_ahead{shard="eu"}');
    for (const token of [removed, unseen]) {
      const refused = await ask('/metrics', token);
      expect([refused.status, await refused.json()]).toEqual([
        503,
        { error: expect.stringContaining('and 1 of 2 is away: use a token of another') as string },
      ]);
    }
    expect((await ask('/metrics')).status).toBe(401);
  });

  it('P13 confirmed tokens are remembered for a while, up to a limit', () => {
    const access = {
      name: 'prometheus',
      scope: 'read',
      tenantId: null,
      forEndpoints: false,
    } as const;
    const confirmed = new Confirmed({ forMs: 1000, most: 2 });
    confirmed.set('a', access, 0);
    expect([confirmed.find('a', 999), confirmed.find('a', 1000)]).toEqual([access, undefined]);
    confirmed.set('b', access, 100);
    confirmed.set('a', access, 200);
    confirmed.set('c', access, 300);
    const known = ['a', 'b', 'c'].filter((key) => confirmed.find(key, 400) !== undefined);
    expect(known, 'the token confirmed longest ago is forgotten').toEqual(['a', 'c']);
  });

  it('N9 /readyz is ready as soon as one shard is served, and says which', async () => {
    const ask = await serve({ isRunning: (shard) => shard === 'eu' });
    const half = await ask('/readyz', await bearer(eu));
    expect([half.status, await half.json()]).toEqual([
      200,
      {
        ready: true,
        shards: { running: 1, refused: 0, waiting: 1 },
        names: { eu: true, us: false },
        refused: {},
      },
    ]);
    const none = await (await serve({ isRunning: () => false }))('/readyz');
    expect(none.status).toBe(503);
  });

  it('N9 P14 /metrics has every shard with its name as a label, also while one is away', async () => {
    const metrics = new Map(
      ['eu', 'us'].map((shard) => [shard, new Metrics({ destinations: ['shop'], shard })]),
    );
    const { relay, events } = makeShardedRelay({
      shards: shardsOf({ eu, us }),
      destinations: { shop: handler(() => undefined) },
    });
    await relay.start();
    await send(eu, numbered('shop', 2));
    await send(us, numbered('shop', 3));
    await untilPlaces(eu, 'shop', { delivered: 2 });
    await untilPlaces(us, 'shop', { delivered: 3 });
    await relay.stop();
    for (const { event, shard } of events) metrics.get(shard)?.observe(event);
    const ask = await serve({ metrics });
    expect((await ask('/metrics')).status).toBe(401);
    expect((await ask('/metrics', await bearer(eu, 'read', 'acme'))).status).toBe(403);
    const answer = await ask('/metrics', await bearer(us));
    const text = await answer.text();
    const program = findPromtool();
    const checked = program === undefined ? null : promtool(program, ['check', 'metrics'], text);
    expect(checked?.words ?? '').toBe('');
    const values = new Map(text.split('\n').map((line) => line.split(' ') as [string, string]));
    const delivered = (shard: string) =>
      values.get(`outbox_attempts_total{shard="${shard}",destination="shop",state="dispatched"}`);
    expect([delivered('eu'), delivered('us')]).toEqual(['2', '3']);
    expect(values.get('outbox_pending_depth{shard="us",destination="shop"}')).toBe('0');
    const half = await (await serve({ usUrl: nowhere }))('/metrics', await bearer(eu));
    const seen = await half.text();
    expect(seen).toContain('outbox_database_up{shard="eu"} 1\noutbox_database_up{shard="us"} 0\n');
    expect(seen).toContain('outbox_partitions_ahead{shard="eu"}');
    expect(seen).not.toContain('outbox_partitions_ahead{shard="us"}');
    expect(
      new Metrics().text({
        destinations: [],
        averageDeliverySeconds: null,
        partitionsAhead: 1,
        unrouted: 0,
        stalledCursors: 0,
      }),
    ).not.toContain('shard');
  });
});
