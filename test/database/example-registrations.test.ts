// The registrations site of examples/registrations: its tables, its processor and its hand-over, with a receiver in
// place of n8n; and its unchanged program.

import { readFileSync } from 'node:fs';
import path from 'node:path';

import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { runNode } from '../support/cli.js';
import { only } from '../support/only.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';

type Body = {
  event: string;
  data: { user_id: number; user_email: string };
  timestamp: string;
};
type Report = { processed: number; succeeded: number; failed: number; finished: boolean };
type Row = {
  id: string;
  event_type: string;
  aggregate_type: string;
  aggregate_id: string;
  status: string;
  retry_count: number;
  max_retries: number;
  next_retry_at: Date | null;
  processed_at: Date | null;
  error_message: string | null;
  error_details: { code: string; status: string; response: string } | null;
};

const db = testDatabase();
const folder = path.resolve('examples/registrations');
const script = (name: string) => db.query(readFileSync(path.join(folder, name), 'utf8'));
const load = async (name: string): Promise<unknown> => import(path.join(folder, name));
const { startReceiver } = (await load('receiver.mjs')) as {
  startReceiver: (
    answer: (body: Body) => number,
  ) => Promise<{ url: string; received: Body[]; stop: () => Promise<void> }>;
};

let answer: (body: Body) => number = () => 200;
const n8n = await startReceiver((body) => answer(body));
const token = 'a-token-of-the-test';
let lastUser = 0;
let post: (request: Request) => Promise<Response>;

// the examples use the default schema, whatever the schema of this project is
beforeAll(async () => {
  vi.stubEnv('DATABASE_URL', db.url);
  vi.stubEnv('N8N_URL', n8n.url);
  vi.stubEnv('DRAIN_TOKEN', token);
  await migrateUp({ url: db.url });
  await script('schema.sql');
  ({ POST: post } = (await load('processor.mjs')) as { POST: typeof post });
  await drain();
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await n8n.stop();
});
beforeEach(async () => {
  answer = () => 200;
  n8n.received.length = 0;
  await setRollout('100');
});

async function drain(): Promise<Report> {
  const headers = { authorization: `Bearer ${token}` };
  const response = await post(new Request('http://localhost/process', { method: 'POST', headers }));
  expect(response.status).toBe(200);
  return (await response.json()) as Report;
}

async function setRollout(change: string): Promise<void> {
  await db.query(`SELECT outbox.set_rollout('registrations', ${change})`);
}

/** Registers new users; returns their ids. */
async function register(count: number): Promise<number[]> {
  const { rows } = await db.query<{ user_id: number }>(
    `INSERT INTO wp_user_registrations (user_id, user_email, registration_url, thankyou_page_url)
     SELECT n + $2::int, n || '@example.com', '/join', '/thanks'
       FROM generate_series(1, $1::int) n RETURNING user_id::int`,
    [count, lastUser],
  );
  lastUser += count;
  return rows.map(({ user_id }) => user_id);
}

async function events(aggregateType: string, aggregateId: unknown): Promise<Row[]> {
  const { rows } = await db.query<Row>(
    'SELECT * FROM webhook_outbox WHERE aggregate_type = $1 AND aggregate_id = $2::text ORDER BY id',
    [aggregateType, aggregateId],
  );
  return rows;
}

const event = async (userId: number) => only(await events('user', userId));

test('W1 W2 changes of the tables become events with their aggregates, and arrive in order', async () => {
  const [user = 0] = await register(1);
  const {
    rows: [ids],
  } = await db.query<{ pair: string; subscription: string }>(`
    WITH p AS (INSERT INTO page_pairs (registration_url, thankyou_page_url, created_by) VALUES ('/join', '/thanks', 'ada') RETURNING id),
    s AS (INSERT INTO subscriptions (user_id, plan, amount, currency, billing_cycle) VALUES (1, 'pro', 19.90, 'EUR', 'monthly') RETURNING id)
    SELECT p.id AS pair, s.id AS subscription FROM p, s`);
  await db.query('UPDATE wp_user_registrations SET user_email = user_email');
  await db.query("UPDATE wp_user_registrations SET user_email = 'new@example.com'");
  await db.query('DELETE FROM wp_user_registrations');
  await db.query("UPDATE page_pairs SET created_by = 'grace'");
  await db.query('DELETE FROM page_pairs');
  await db.query("UPDATE subscriptions SET plan = 'basic'");
  await db.query("UPDATE subscriptions SET status = 'cancelled'");
  const { rows: payments } = await db.query<{ id: string }>(
    `INSERT INTO payments (transaction_id, subscription_id, amount, currency, status)
     VALUES ('tx-1', $1, 19.90, 'EUR', 'failed'), ('tx-2', $1, 19.90, 'EUR', 'succeeded') RETURNING id`,
    [ids?.subscription],
  );

  expect(await drain()).toMatchObject({ processed: 10, succeeded: 10, failed: 0 });
  const typesOf = async (type: string, id: unknown) =>
    (await events(type, id)).map(({ event_type }) => event_type);
  expect(await typesOf('user', user)).toEqual(['user.registered', 'user.updated', 'user.deleted']);
  expect(await typesOf('pair', ids?.pair)).toEqual([
    'pair.created',
    'pair.updated',
    'pair.deleted',
  ]);
  expect(await typesOf('subscription', ids?.subscription)).toEqual([
    'subscription.created',
    'subscription.cancelled',
  ]);
  expect(await typesOf('payment', payments[0]?.id)).toEqual(['payment.failed']);
  expect(await typesOf('payment', payments[1]?.id)).toEqual(['payment.succeeded']);

  const ofUser = n8n.received.filter((body) => body.event.startsWith('user.'));
  expect(ofUser.map((body) => body.event)).toEqual(await typesOf('user', user));
  expect(ofUser[1]?.data).toMatchObject({ user_id: user, user_email: 'new@example.com' });
  expect(Object.keys(ofUser[0] ?? {}).toSorted()).toEqual(['data', 'event', 'timestamp']);
  expect(Date.parse(ofUser[0]?.timestamp ?? '')).toBeGreaterThan(Date.now() - 60_000);
});

test('W1 a rolled-back change makes no event', async () => {
  const before = await db.query('SELECT FROM webhook_outbox');
  await expect(
    db.inTransaction(async (client) => {
      await client.query(
        "INSERT INTO page_pairs (registration_url, thankyou_page_url, created_by) VALUES ('/a', '/b', 'ada')",
      );
      throw new Error('no');
    }),
  ).rejects.toThrow('no');
  expect((await db.query('SELECT FROM webhook_outbox')).rowCount).toBe(before.rowCount);
});

test('W2 W3 five retries, after 1, 5, 15, 60 and 120 minutes; then a dead letter that says why', async () => {
  const [user = 0] = await register(1);
  expect(await event(user)).toMatchObject({ status: 'pending', retry_count: 0, max_retries: 5 });
  answer = () => 500;
  for (const [retries, seconds] of [60, 300, 900, 3600, 7200].entries()) {
    expect(await drain()).toMatchObject({ processed: 1, succeeded: 0, failed: 1 });
    const row = await event(user);
    expect(row).toMatchObject({ status: 'failed', retry_count: retries, processed_at: null });
    const wait = ((row.next_retry_at?.getTime() ?? 0) - Date.now()) / 1000;
    expect(wait).toBeGreaterThan(seconds - 30);
    expect(wait).toBeLessThanOrEqual(seconds);
    // nothing is due before its time
    expect(await drain()).toMatchObject({ processed: 0 });
    await db.query("SELECT outbox.retry_now('n8n')");
  }
  expect(await drain()).toMatchObject({ processed: 1, failed: 1 });
  const dead = await event(user);
  expect(dead).toMatchObject({
    status: 'dead_letter',
    retry_count: 5,
    next_retry_at: null,
    error_message: 'the receiver answered 500 Internal Server Error',
    error_details: { code: 'http_status', status: '500', response: 'not now' },
  });
  expect(dead.processed_at).toBeInstanceOf(Date);
  expect(n8n.received).toEqual([]);
});

test('W2 after 410 the events wait, visibly, and continue when an operator resumes', async () => {
  answer = () => 410;
  const users = await register(2);
  await drain();
  for (const user of users) expect((await event(user)).status).toBe('pending');
  const { rows } = await db.query(
    "SELECT paused_code FROM outbox.destinations WHERE name = 'n8n' AND paused_at IS NOT NULL",
  );
  expect(rows).toEqual([{ paused_code: 'endpoint_gone' }]);
  answer = () => 200;
  expect(await drain()).toMatchObject({ processed: 0 });
  await db.query("SELECT outbox.set_paused('n8n', false)");
  expect(await drain()).toMatchObject({ processed: 2, succeeded: 2 });
  for (const user of users)
    expect(await event(user)).toMatchObject({ status: 'sent', retry_count: 0 });
});

test('W4 a thousand registrations in one statement: one call of the processor sends each once', async () => {
  const users = await register(1000);
  expect(await drain()).toMatchObject({
    processed: 1000,
    succeeded: 1000,
    failed: 0,
    finished: true,
  });
  expect(n8n.received.map(({ data }) => data.user_id).toSorted((a, b) => a - b)).toEqual(users);
  const { rows } = await db.query<{ largest: number }>(
    'SELECT max(n)::int AS largest FROM (SELECT count(*) AS n FROM outbox.attempt_log GROUP BY relay_id, claimed_at) x',
  );
  // in batches, and none larger than configured
  expect(only(rows).largest).toBeGreaterThan(1);
  expect(only(rows).largest).toBeLessThanOrEqual(100);
});

test('W6 from the shadow over shares and back, exactly one of the two systems sends every registration; then the old one retires', async () => {
  const logged = async () => {
    const { rows } = await db.query<{ user_id: number }>(
      "SELECT (body -> 'data' ->> 'user_id')::int AS user_id FROM webhook_logs ORDER BY 1",
    );
    return rows.map(({ user_id }) => user_id);
  };
  const isNew = async (user: number) => {
    const { rows } = await db.query<{ decision: string }>(
      "SELECT outbox.rollout_decision('registrations', 'user/' || $1::text) AS decision",
      [user],
    );
    return only(rows).decision === 'new';
  };
  const verdicts = async () => {
    const { rows } = await db.query(
      "SELECT verdict, count::int FROM outbox.rollout_report('registrations', ignore => '{timestamp}', grace => '0') WHERE count > 0",
    );
    return rows;
  };
  /** Registers users, and returns those that went to n8n. */
  const sentByWaybill = async (count: number): Promise<number[]> => {
    n8n.received.length = 0;
    await db.query('TRUNCATE webhook_logs');
    const users = await register(count);
    await drain();
    const sent = n8n.received.map(({ data }) => data.user_id);
    expect([...sent, ...(await logged())].toSorted((a, b) => a - b)).toEqual(users);
    return sent;
  };

  await script('old-system.sql');
  await setRollout('shadow => true');
  expect(await sentByWaybill(20)).toEqual([]);
  expect(await verdicts()).toEqual([{ verdict: 'matched', count: 20 }]);

  await setRollout('10');
  const tenth = await sentByWaybill(200);
  expect(tenth.length).toBeGreaterThan(5);
  expect(tenth.length).toBeLessThan(50);
  await expect(script('retire.sql')).rejects.toThrow(/below 100/);
  await setRollout('50');
  // a key that is included at 10 % is included at 50 %
  for (const user of tenth) expect(await isNew(user)).toBe(true);
  expect((await sentByWaybill(100)).length).toBeGreaterThan(25);
  await setRollout('0');
  expect(await sentByWaybill(10)).toEqual([]);
  // messages of a divided rollout are not compared
  expect(await verdicts()).toEqual([{ verdict: 'matched', count: 20 }]);
  await setRollout('100');
  expect(await sentByWaybill(10)).toHaveLength(10);

  await setRollout('50');
  await sentByWaybill(50);
  const old = await logged();
  await setRollout('100');
  const retiring = await db.connect();
  const retire = readFileSync(path.join(folder, 'retire.sql'), 'utf8');
  await retiring.query(retire.replace(/^COMMIT;/m, ''));
  await expect(setRollout('50'), 'while it is retired').rejects.toMatchObject({ code: '55P03' });
  await retiring.query('ROLLBACK');
  await script('retire.sql');
  const archived = await db.query('SELECT FROM archive.webhook_logs');
  expect(archived.rowCount).toBe(old.length);
  n8n.received.length = 0;
  const users = await register(5);
  await drain();
  expect(n8n.received.map(({ data }) => data.user_id).toSorted((a, b) => a - b)).toEqual(users);
});

test('W6 nothing is retired if there is no rollout', async () => {
  const { url, client } = await otherDatabase('empty');
  await migrateUp({ url });
  const retire = readFileSync(path.join(folder, 'retire.sql'), 'utf8');
  await expect(client.query(retire)).rejects.toThrow(/below 100/);
});

test('W1 W2 W6 the program hands over without a loss, and what n8n refused waits and arrives later', async () => {
  const { url } = await otherDatabase('empty');
  const { code, stdout, stderr } = await runNode([path.join(folder, 'main.mjs')], {
    environment: { DATABASE_URL: url },
  }).ended();
  expect(`${code} ${stderr}`).toBe('0 ');
  expect(stdout).toContain(
    'in the shadow: {"old":40,"new":0} [{"verdict":"matched","count":"40"}]',
  );
  for (const percent of [10, 50, 100]) {
    const [, old, now] =
      new RegExp(`at ${percent} %, 100 registrations: {"old":(\\d+),"new":(\\d+)}`).exec(stdout) ??
      [];
    expect(Number(old) + Number(now)).toBe(100);
  }
  expect(stdout).toMatch(/n8n refused: .*"status":"failed","retry_count":0,"max_retries":5/);
  expect(stdout).toMatch(/webhook_outbox: \[{"status":"sent","count":\d+}\]/);
});
