// The registrations site of examples/registrations: its events, its processor and its hand-over, with a receiver in
// place of n8n; and its unchanged program.

import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';

import { expect, inject, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { runNode } from '../support/cli.js';
import { only } from '../support/only.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { folder, registrationsSite, sqlOf } from '../support/registrations.js';
import type { OutboxRow } from '../support/registrations.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const site = registrationsSite(db);

/** Registers new users; returns the ids of the registrations. */
async function register(count: number): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `INSERT INTO wp_user_registrations (user_id, user_email, registration_url, thankyou_page_url)
     SELECT gen_random_uuid(), n || '@example.com', '/join', '/thanks' FROM generate_series(1, $1::int) n RETURNING id`,
    [count],
  );
  return rows.map(({ id }) => id);
}

const events = (aggregateId: string) => site.rows('aggregate_id = $1', [aggregateId]);
const eventOf = async (aggregateId: string): Promise<OutboxRow> => only(await events(aggregateId));
/** The registrations among these bodies, by their address, which is the one field that a test can choose. */
const emails = () => site.received.map(({ data }) => String(data['email']));

test('W1 W2 W9 n8n receives exactly the agreed body of each event, with uuids, whatever the time zone', async () => {
  const [pair = '', registration = '', subscription = '', paid = '', failed = ''] = Array.from(
    { length: 5 },
    () => randomUUID(),
  );
  const [user, admin] = [randomUUID(), randomUUID()];
  const client = await db.connect();
  const run = (sql: string, values: unknown[] = []) => client.query(sql, values);
  await run("SET timezone = 'Asia/Kathmandu'");
  await run(
    `INSERT INTO page_pairs (id, registration_url, thankyou_page_url, created_by, created_at)
     VALUES ($1, 'https://site/join', 'https://site/thanks', $2, '2026-01-02T03:04:05Z')`,
    [pair, admin],
  );
  await run("UPDATE page_pairs SET thankyou_page_url = 'https://site/welcome' WHERE id = $1", [
    pair,
  ]);
  await run(
    `INSERT INTO wp_user_registrations (id, user_id, user_email, registration_url, thankyou_page_url, pair_id, registered_at)
     VALUES ($1, $2, 'ada@example.com', 'https://site/join', 'https://site/thanks', $3, '2026-01-03T00:00:00.125Z')`,
    [registration, user, pair],
  );
  // changes nothing, and makes no event
  await run('UPDATE wp_user_registrations SET user_email = user_email WHERE id = $1', [
    registration,
  ]);
  await run('UPDATE wp_user_registrations SET pair_id = NULL WHERE id = $1', [registration]);
  await run('DELETE FROM wp_user_registrations WHERE id = $1', [registration]);
  await run('DELETE FROM page_pairs WHERE id = $1', [pair]);
  await run(
    `INSERT INTO subscriptions (id, user_id, plan, amount, currency, billing_cycle, started_at)
     VALUES ($1, $2, 'pro', 19.90, 'EUR', 'monthly', '2026-02-01T00:00:00Z')`,
    [subscription, user],
  );
  await run(
    `INSERT INTO payments (id, user_id, subscription_id, amount, currency, payment_method, transaction_id, paid_at, failed_at)
     VALUES ($1, $3, $4, 19.90, 'EUR', 'card', 'tx-1', '2026-02-01T00:00:01Z', NULL),
            ($2, $3, $4, 19.90, 'EUR', 'card', 'tx-2', NULL, '2026-03-01T00:00:01Z')`,
    [paid, failed, user, subscription],
  );
  await run("UPDATE subscriptions SET cancelled_at = '2026-04-01T00:00:00Z' WHERE id = $1", [
    subscription,
  ]);

  expect(await site.drain()).toMatchObject({ processed: 10, succeeded: 10, failed: 0 });
  const registered = {
    user_id: user,
    email: 'ada@example.com',
    registration_url: 'https://site/join',
    thankyou_page_url: 'https://site/thanks',
    pair_id: pair,
    registered_at: '2026-01-03T00:00:00.125+00:00',
  };
  const created = {
    pair_id: pair,
    registration_url: 'https://site/join',
    thankyou_page_url: 'https://site/thanks',
    created_by: admin,
    created_at: '2026-01-02T03:04:05+00:00',
  };
  const started = {
    user_id: user,
    plan: 'pro',
    amount: 19.9,
    currency: 'EUR',
    billing_cycle: 'monthly',
    started_at: '2026-02-01T00:00:00+00:00',
  };
  const payment = {
    user_id: user,
    subscription_id: subscription,
    amount: 19.9,
    currency: 'EUR',
    payment_method: 'card',
  };
  const agreed: [string, string, string, object][] = [
    ['user', registration, 'user.registered', registered],
    ['user', registration, 'user.updated', { ...registered, pair_id: null }],
    ['user', registration, 'user.deleted', { ...registered, pair_id: null }],
    ['pair', pair, 'pair.created', created],
    ['pair', pair, 'pair.updated', { ...created, thankyou_page_url: 'https://site/welcome' }],
    ['pair', pair, 'pair.deleted', { ...created, thankyou_page_url: 'https://site/welcome' }],
    ['subscription', subscription, 'subscription.created', started],
    [
      'subscription',
      subscription,
      'subscription.cancelled',
      { ...started, cancelled_at: '2026-04-01T00:00:00+00:00' },
    ],
    [
      'payment',
      paid,
      'payment.succeeded',
      { ...payment, transaction_id: 'tx-1', paid_at: '2026-02-01T00:00:01+00:00' },
    ],
    [
      'payment',
      failed,
      'payment.failed',
      { ...payment, transaction_id: 'tx-2', failed_at: '2026-03-01T00:00:01+00:00' },
    ],
  ];
  for (const [type, id, name, data] of agreed) {
    const row = only((await events(id)).filter(({ event_type }) => event_type === name));
    expect(row).toMatchObject({ aggregate_type: type, aggregate_id: id, payload: data });
    const body = only(
      site.received.filter(
        ({ event, data: sent }) => event === name && isDeepStrictEqual(sent, data),
      ),
    );
    expect(body).toStrictEqual({ event: name, data, timestamp: row.created_at.toISOString() });
    expect(Object.keys(body)).toEqual(['event', 'data', 'timestamp']);
  }
  // the events of an aggregate arrive in order
  for (const type of ['user', 'pair', 'subscription'])
    expect(
      site.received.map(({ event }) => event).filter((name) => name.startsWith(`${type}.`)),
    ).toEqual(agreed.filter(([of]) => of === type).map(([, , name]) => name));
});

test('W1 a rolled-back change makes no event', async () => {
  const before = await site.rows();
  await expect(
    db.inTransaction(async (client) => {
      await client.query(
        "INSERT INTO page_pairs (registration_url, thankyou_page_url, created_by) VALUES ('/a', '/b', gen_random_uuid())",
      );
      throw new Error('no');
    }),
  ).rejects.toThrow('no');
  expect(await site.rows()).toHaveLength(before.length);
});

test('W2 W3 W9 retry_count is 1 after the first failure; retries after 1, 5, 15 and 60 minutes; the fifth failure is dead and says why', async () => {
  const [id = ''] = await register(1);
  expect(await eventOf(id)).toMatchObject({
    status: 'pending',
    retry_count: 0,
    max_retries: 5,
    next_retry_at: null,
  });
  site.answer = () => 500;
  for (const [failures, seconds] of [60, 300, 900, 3600].entries()) {
    expect(await site.drain()).toMatchObject({ processed: 1, succeeded: 0, failed: 1 });
    const row = await eventOf(id);
    expect(row).toMatchObject({
      status: 'failed',
      retry_count: failures + 1,
      processed_at: null,
    });
    const wait = ((row.next_retry_at?.getTime() ?? 0) - Date.now()) / 1000;
    expect(wait).toBeGreaterThan(seconds - 30);
    expect(wait).toBeLessThanOrEqual(seconds);
    // nothing is due before its time
    expect(await site.drain()).toMatchObject({ processed: 0 });
    await db.query("SELECT outbox.retry_now('n8n')");
  }
  expect(await site.drain()).toMatchObject({ processed: 1, failed: 1 });
  const dead = await eventOf(id);
  expect(dead).toMatchObject({
    status: 'dead_letter',
    retry_count: 5,
    max_retries: 5,
    next_retry_at: null,
    error_message: 'the receiver answered 500 Internal Server Error',
    error_details: { code: 'http_status', status: '500', response: 'not now' },
  });
  expect(dead.processed_at).toBeInstanceOf(Date);
  expect(site.received).toEqual([]);
});

test('W3 W9 an event that fails twice and then arrives has the retry_count 2; while it is sent, it is processing', async () => {
  const [id = ''] = await register(1);
  for (const status of [500, 503]) {
    site.answer = () => status;
    await site.drain();
    await db.query("SELECT outbox.retry_now('n8n')");
  }
  let meanwhile: Promise<OutboxRow> | undefined;
  site.answer = () => {
    meanwhile = eventOf(id);
    return 200;
  };
  await site.drain();
  expect(await eventOf(id)).toMatchObject({ status: 'sent', retry_count: 2 });
  // the answer may be recorded before the row is read
  expect((await meanwhile)?.retry_count).toBe(2);
});

test('W2 after 410 the events wait, visibly, and continue when an operator resumes', async () => {
  site.answer = () => 410;
  const ids = await register(2);
  await site.drain();
  for (const id of ids) expect((await eventOf(id)).status).toBe('pending');
  const { rows } = await db.query(
    "SELECT paused_code FROM outbox.destinations WHERE name = 'n8n' AND paused_at IS NOT NULL",
  );
  expect(rows).toEqual([{ paused_code: 'endpoint_gone' }]);
  site.answer = () => 200;
  expect(await site.drain()).toMatchObject({ processed: 0 });
  await db.query("SELECT outbox.set_paused('n8n', false)");
  expect(await site.drain()).toMatchObject({ processed: 2, succeeded: 2 });
  for (const id of ids) expect(await eventOf(id)).toMatchObject({ status: 'sent', retry_count: 0 });
});

/** Every registration has two. */
const sentInADay = inject('isFull') ? 10_000 : 1000;

test(`W4 W7 W9 W10 ${sentInADay} events of a day arrive once, in order for each aggregate, and the page shows the delivery rate`, async () => {
  const { rows: before } = await db.query<{ delivered: number; died: number }>(
    "SELECT delivered::int, died::int FROM outbox.delivery_rates('1 day', 'n8n')",
  );
  const ids = await register(sentInADay / 2);
  await db.query(
    'UPDATE wp_user_registrations SET user_email = id || user_email WHERE id = ANY ($1)',
    [ids],
  );
  // a few are refused once
  const refused = new Set<string>();
  site.answer = ({ data }) => {
    const email = String(data['email']);
    if (!email.startsWith('500') || refused.has(email)) return 200;
    refused.add(email);
    return 503;
  };
  const first = await site.drain();
  expect(first).toMatchObject({ finished: true, failed: refused.size });
  expect(refused.size).toBeGreaterThan(0);
  await db.query("SELECT outbox.retry_now('n8n')");
  await site.drain();

  expect(site.received).toHaveLength(sentInADay);
  const registered = new Map<string, number>();
  let outOfOrder = 0;
  for (const [place, { event: name, data }] of site.received.entries()) {
    const user = String(data['user_id']);
    if (name === 'user.registered') registered.set(user, place);
    else if (!registered.has(user)) outOfOrder += 1;
  }
  expect(registered.size).toBe(sentInADay / 2);
  expect(
    new Set(site.received.map(({ event: name, data }) => `${name} ${String(data['user_id'])}`))
      .size,
  ).toBe(sentInADay);
  expect(outOfOrder).toBe(0);

  // in batches, and none larger than configured
  const { rows: batches } = await db.query<{ largest: number }>(
    'SELECT max(n)::int AS largest FROM (SELECT count(*) AS n FROM outbox.attempts GROUP BY relay_id, claimed_at) x',
  );
  expect(only(batches).largest).toBeGreaterThan(1);
  expect(only(batches).largest).toBeLessThanOrEqual(100);

  // the figures of the page: of all that this file has sent, the dead letter of an earlier test died
  const server = await serveDatabase(db);
  const overview = await (await server.as('read'))('GET', '/api/overview?minutes=1440');
  const { delivered, died } = only(before);
  const figures = overview.body as { deliveredToday: number; deliveryRate: number };
  expect(figures.deliveredToday).toBe(delivered + sentInADay);
  const rate = (delivered + sentInADay) / (delivered + sentInADay + died);
  expect(figures.deliveryRate).toBeCloseTo(rate, 5);
  expect(figures.deliveryRate).toBeGreaterThanOrEqual(0.999);
}, 120_000);

test('W6 W9 from the shadow over shares and back, exactly one of the two systems sends every registration; then the old one retires', async () => {
  const isNew = async (id: string) => {
    const { rows } = await db.query<{ decision: string }>(
      "SELECT outbox.rollout_decision('registrations', 'user/' || $1::text) AS decision",
      [id],
    );
    return only(rows).decision === 'new';
  };
  const logged = async () => {
    const { rows } = await db.query<{ email: string }>(
      "SELECT body -> 'data' ->> 'email' AS email FROM webhook_logs ORDER BY sent_at",
    );
    return rows.map(({ email }) => email);
  };
  const verdicts = async () => {
    const { rows } = await db.query(
      "SELECT verdict, count::int FROM outbox.rollout_report('registrations', ignore => '{timestamp}', grace => '0') WHERE count > 0",
    );
    return rows;
  };
  /** Registers users, and returns how many went to n8n, and their registrations. */
  const sentByWaybill = async (count: number) => {
    site.received.length = 0;
    await db.query('TRUNCATE webhook_logs');
    const ids = await register(count);
    await site.drain();
    const sent = emails();
    const all = Array.from({ length: count }, (_, n) => `${n + 1}@example.com`).toSorted();
    expect([...sent, ...(await logged())].toSorted()).toEqual(all);
    return { sent: sent.length, ids };
  };

  await site.run('old-system.sql');
  await site.setRollout('shadow => true');
  expect((await sentByWaybill(20)).sent).toBe(0);
  expect(await verdicts()).toEqual([{ verdict: 'matched', count: 20 }]);

  await site.setRollout('10');
  const tenth = await sentByWaybill(200);
  expect(tenth.sent).toBeGreaterThan(2);
  expect(tenth.sent).toBeLessThan(60);
  await expect(site.run('retire.sql')).rejects.toThrow(/below 100/);
  const { rows: atTenth } = await db.query<{ id: string }>(
    'SELECT i AS id FROM unnest($1::text[]) i WHERE outbox.rollout_decision($2, $3 || i) = $4',
    [tenth.ids, 'registrations', 'user/', 'new'],
  );
  expect(atTenth).toHaveLength(tenth.sent);
  await site.setRollout('50');
  // a key that is included at 10 % is included at 50 %
  for (const { id } of atTenth) expect(await isNew(id)).toBe(true);
  expect((await sentByWaybill(100)).sent).toBeGreaterThan(25);
  await site.setRollout('0');
  expect((await sentByWaybill(10)).sent).toBe(0);
  // messages of a divided rollout are not compared
  expect(await verdicts()).toEqual([{ verdict: 'matched', count: 20 }]);
  await site.setRollout('100');
  expect((await sentByWaybill(10)).sent).toBe(10);

  await site.setRollout('50');
  await sentByWaybill(50);
  const old = await logged();
  await site.setRollout('100');
  const retiring = await db.connect();
  await retiring.query(sqlOf('retire.sql').replace(/^COMMIT;/m, ''));
  await expect(site.setRollout('50'), 'while it is retired').rejects.toMatchObject({
    code: '55P03',
  });
  await retiring.query('ROLLBACK');
  await site.run('retire.sql');
  const archived = await db.query('SELECT FROM archive.webhook_logs');
  expect(archived.rowCount).toBe(old.length);
  site.received.length = 0;
  await register(5);
  await site.drain();
  expect(site.received).toHaveLength(5);
});

test('W6 nothing is retired if there is no rollout', async () => {
  const { url, client } = await otherDatabase('empty');
  await migrateUp({ url });
  await expect(client.query(sqlOf('retire.sql'))).rejects.toThrow(/below 100/);
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
      new RegExp(
        `at about ${percent} %, by a hash of the id, 100 registrations: {"old":(\\d+),"new":(\\d+)}`,
      ).exec(stdout) ?? [];
    expect(Number(old) + Number(now)).toBe(100);
  }
  expect(stdout).toMatch(/n8n refused: .*"status":"failed","retry_count":1,"max_retries":5/);
  expect(stdout).toMatch(/webhook_outbox: \[{"status":"sent","count":\d+}\]/);
});
