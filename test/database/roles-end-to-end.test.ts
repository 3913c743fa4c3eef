// The recommended setup: an administrator who is not a superuser migrates and installs the roles. Then an application,
// a relay in its own process, the page's API and a reader of one tenant work with a login each that has only its role.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { expect, it } from 'vitest';

import { createOutbox } from '../../src/producer/outbox.js';
import { describedRoutes } from '../support/api-routes.js';
import { cli, json, startCli, writeConfig } from '../support/cli.js';
import { testKey } from '../support/endpoints.js';
import { only } from '../support/only.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const suffix = randomUUID().slice(0, 8);
const prefix = `e2e_${suffix}_`;
const admin = `admin_${suffix}`;

/** Keys wait behind what the receiver refuses; one tenant's message fails once before it arrives. */
const config = `{
  destinations: {
    crm: handler((message) => {
      if (message.topic === 'user.bad') return reject({ code: 'refused_by_crm' });
      if (message.topic === 'user.slow' && message.tries === 1) return retry({ code: 'crm_busy', afterMs: 1 });
    }, { retry: { maxAttempts: 3, baseMs: 10, maxMs: 10 }, whenDead: 'block' }),
  },
  routes: [{ topic: 'user.*', to: 'crm' }],
  retention: { at: '00:00', pauseMs: 1 },
  audit: { seal: true, delayMs: 0, everyMs: 1000 },
  server: { port: 0 },
}`;

it('P13 N8 everything works with the least rights: migrate, enqueue, deliver, retry, die, maintain, serve', async () => {
  const { url, client: superuser } = await otherDatabase('empty');
  await superuser.query(`CREATE ROLE ${admin} LOGIN CREATEROLE`);
  const name = only(
    (await superuser.query<{ name: string }>('SELECT current_database() AS name')).rows,
  ).name;
  await superuser.query(`ALTER DATABASE ${name} OWNER TO ${admin}`);
  const urlOf = (login: string): string => {
    const other = new URL(url);
    other.username = login;
    return other.href;
  };
  const run = async (login: string, ...args: string[]) => {
    const ended = await cli(args, {
      environment: { DATABASE_URL: urlOf(login), WAYBILL_SCHEMA: db.schema },
    });
    expect(ended, `${args.join(' ')}: ${ended.stderr}`).toMatchObject({ code: 0 });
    return ended;
  };

  // the administrator
  await run(admin, 'migrate', 'up');
  const planned = json(
    await run(admin, 'roles', 'install', '--prefix', prefix, '--dry-run', '--json'),
  );
  expect(planned).toMatchObject({ dryRun: true });
  const { rows: none } = await superuser.query('SELECT FROM pg_roles WHERE rolname LIKE $1', [
    `${prefix}%`,
  ]);
  expect(none).toEqual([]);
  await run(admin, 'roles', 'install', '--prefix', prefix);
  expect(json(await run(admin, 'roles', 'install', '--prefix', prefix, '--json'))).toEqual({
    statements: [],
    dryRun: false,
  });
  const administrator = new pg.Client({ connectionString: urlOf(admin) });
  await administrator.connect();
  const logins = {
    app: 'producer',
    the_relay: 'relay',
    reader: 'tenant_reader',
    checker: 'auditor',
  };
  for (const [who, role] of Object.entries(logins))
    await administrator.query(`CREATE ROLE ${prefix}${who} LOGIN IN ROLE ${prefix}${role}`);
  await administrator.query(
    `CREATE ROLE ${prefix}server LOGIN IN ROLE ${prefix}control, ${prefix}operator`,
  );
  await administrator.query(`GRANT ${prefix}maintenance TO ${prefix}the_relay`);
  await run(admin, 'migrate', 'up');
  const { token } = json(
    await run(admin, 'tokens', 'add', 'e2e', '--scope', 'admin', '--json'),
  ) as { token: string };
  // expired days, and a missing day ahead
  await administrator.query(
    `SELECT ${db.quoted}.make_partitions(0, (now() AT TIME ZONE 'UTC')::date - 40)`,
  );
  const ahead = only(
    (
      await administrator.query<{ name: string }>(
        `SELECT to_char(now() AT TIME ZONE 'UTC' + interval '50 days', '"messages_"YYYYMMDD') AS name`,
      )
    ).rows,
  ).name;
  await administrator.query(`DROP TABLE ${db.quoted}.${ahead}`);
  await administrator.end();

  // the relay and its port, each with its own login
  const relay = startCli(['start', '--config', writeConfig(config)], {
    environment: {
      DATABASE_URL: urlOf(`${prefix}the_relay`),
      DATABASE_SERVER_URL: urlOf(`${prefix}server`),
      WAYBILL_SCHEMA: db.schema,
      WAYBILL_SECRET_KEY: testKey,
    },
  });
  await relay.says(/"msg":"serving"/);
  const base = /"url":"(http:[^"]+)"/.exec(relay.stderr + relay.stdout)?.[1] ?? '';

  // the application
  const application = new pg.Client({ connectionString: urlOf(`${prefix}app`) });
  await application.connect();
  const outbox = createOutbox({ schema: db.schema });
  await application.query('BEGIN');
  const sent = await outbox.enqueueMany(application, [
    { topic: 'user.good', tenantId: 'acme' },
    { topic: 'user.slow', tenantId: 'acme' },
    { topic: 'user.bad', tenantId: 'globex', key: 'k' },
    { topic: 'user.good', tenantId: 'globex', key: 'k' },
    { topic: 'not.routed' },
  ]);
  await application.query('COMMIT');
  await application.end();

  const states = async (): Promise<Record<string, string>> => {
    const { rows } = await superuser.query<{ topic: string; status: string }>(
      `SELECT message_id AS id, status, topic FROM ${db.quoted}.message_status ORDER BY message_id`,
    );
    return Object.fromEntries(rows.map((row, index) => [`${index} ${row.topic}`, row.status]));
  };
  await waitFor(
    async () => Object.values(await states()).filter((s) => s === 'delivered').length === 2,
    {
      what: 'two deliveries',
      timeoutMs: 20_000,
    },
  );
  await waitFor(async () => Object.values(await states()).includes('dead'), { what: 'a dead one' });
  const { rows: tries } = await superuser.query(
    `SELECT state FROM ${db.quoted}.attempts WHERE message_id = $1 ORDER BY claim_no`,
    [sent[1]?.id],
  );
  expect(tries).toEqual([{ state: 'retryable' }, { state: 'dispatched' }]);

  // its seals, and their auditor
  await relay.says(/"msg":"audit_sealed"/);
  await run(`${prefix}checker`, 'audit', 'verify');
  await run(`${prefix}checker`, 'audit', 'heads');
  const hidden = await cli(['audit', 'verify'], {
    environment: { DATABASE_URL: urlOf(`${prefix}reader`), WAYBILL_SCHEMA: db.schema },
  });
  expect(hidden).toMatchObject({ code: 1 });
  expect(hidden.stderr).toContain(`row level security hides rows of attempts`);

  // its maintenance
  const partitions = async (like: string): Promise<number> =>
    only(
      (
        await superuser.query<{ count: number }>(
          `SELECT count(*)::int AS count FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r' AND c.relname LIKE $2`,
          [db.quoted, like],
        )
      ).rows,
    ).count;
  await waitFor(async () => (await partitions(ahead)) === 1, { what: 'the missing partition' });
  const expired = `SELECT count(*)::int AS count FROM ${db.quoted}.expired_partitions('7 days', '30 days')`;
  const expiredCount = async (): Promise<number> =>
    only((await superuser.query<{ count: number }>(expired)).rows).count;
  expect(await expiredCount()).toBeGreaterThan(40);
  // the work that every relay does by itself at the configured hour
  await run(`${prefix}the_relay`, 'maintain');
  expect(await expiredCount()).toBe(0);
  await run(`${prefix}checker`, 'audit', 'verify');

  // the API: every route, with real data
  const ask = async (method: string, path: string, body?: object) => {
    const response = await fetch(base + path, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(method !== 'GET' && { body: JSON.stringify(body ?? {}) }),
    });
    return { status: response.status, text: await response.text() };
  };
  const dead = sent[2]?.id ?? '';
  const bodies: Record<string, object> = {
    '/api/dead-letters/plan': { destination: 'crm' },
    '/api/dead-letters/jobs': {
      action: 'retry',
      destination: 'crm',
      deadBefore: '2020-01-01T00:00:00Z',
    },
    '/api/retrying/retry': { destination: 'crm' },
    '/api/replays/plan': { destination: 'crm', all: true },
    '/api/replays': { destination: 'crm', all: true, until: '2020-01-01T00:00:00Z' },
    '/api/endpoints': { url: 'https://example.com/', topics: ['none'], tenantId: 'initech' },
    '/api/endpoints/{name}': { description: 'changed' },
    '/api/endpoints/{name}/replay': { since: '2020-01-01T00:00:00Z' },
  };
  // one of them removes it
  const newEndpoint = async () =>
    JSON.parse((await ask('POST', '/api/endpoints', bodies['/api/endpoints'])).text) as {
      name: string;
    };
  for (const { method, path } of describedRoutes()) {
    const at = path.startsWith('/api/endpoints/') ? await newEndpoint() : { name: 'crm' };
    const asked = path
      .replace('{action}', 'retry')
      .replace('{name}', at.name)
      .replace('{replay}', '1')
      .replace('{id}', dead)
      .replace('{messageId}', dead)
      .replace('{destination}', 'crm')
      .replaceAll(/\{\w+\}/g, randomUUID())
      .replace(/suggestions$/, 'suggestions?text=a');
    const { status, text } = await ask(method, asked, method === 'DELETE' ? {} : bodies[path]);
    // everything that is read exists, except a job or a tail that was never started, a rollout without a route, an event without a
    // topic, and a message or a replay of an endpoint that is new
    const isMissing =
      /\{job\}|tail\/|rollouts\/|catalogue\/event|\{name\}\/(messages|replays)\/\{/.test(path);
    const most = method === 'GET' && !isMissing ? 200 : 499;
    expect(status, `${method} ${asked}: ${text}`).toBeLessThanOrEqual(most);
    expect(text, `${method} ${asked}`).not.toMatch(/permission denied/);
  }
  for (const path of ['/healthz', '/metrics'])
    expect((await ask('GET', path)).status, path).toBe(200);

  // the reader of one tenant
  const reader = new pg.Client({ connectionString: urlOf(`${prefix}reader`) });
  await reader.connect();
  await reader.query(`SET waybill.tenant_id = 'acme'`);
  const { rows: own } = await reader.query<{ status: string }>(
    `SELECT topic, status FROM ${db.quoted}.message_status ORDER BY message_id`,
  );
  expect(own).toEqual([
    { topic: 'user.good', status: 'delivered' },
    { topic: 'user.slow', status: 'delivered' },
  ]);
  await reader.end();

  relay.process.kill('SIGTERM');
  expect(await relay.ended()).toMatchObject({ code: 0 });
  expect(relay.stderr + relay.stdout).not.toMatch(/permission denied|must be owner/);
}, 120_000);

it('P13 a migration by a login that is not a member of the owner is refused with the remedy', async () => {
  const stranger = `stranger_${suffix}`;
  await db.query(`CREATE ROLE ${stranger} LOGIN`);
  const address = new URL(db.url);
  address.username = stranger;
  const ended = await cli(['migrate', 'up'], {
    environment: { DATABASE_URL: address.href, WAYBILL_SCHEMA: db.schema },
  });
  expect(ended.code).toBe(4);
  expect(ended.stderr).toContain(`is not a member of it: GRANT "waybill_owner" TO "${stranger}"`);
  await db.query(`DROP ROLE ${stranger}`);
});
