// examples/registrations/UPGRADE.md: from the site's table webhook_outbox, with rows in every state and triggers that
// insert meanwhile, to the view over Waybill.

import { spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import path from 'node:path';

import pg from 'pg';
import { expect, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { only } from '../support/only.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { testDatabase } from '../support/postgres.js';
import { hasPrograms } from '../support/programs.js';
import { folder, registrationsSite, sqlOf } from '../support/registrations.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase({
  async eachTestFrom(url) {
    await migrateUp({ url });
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    for (const file of ['site.sql', 'before.sql']) await client.query(sqlOf(file));
    await client.end();
  },
});
const site = registrationsSite(db, { newForEachTest: true });
const upgrade = sqlOf('upgrade.sql');
const minutes = (count: number) => new Date(Date.UTC(2026, 0, 1, 0, count)).toISOString();

type Old = { status: string; retries?: number; retryAt?: Date; error?: string; type?: string };

/** Writes a row of the old table; the n-th of a test was created in the n-th minute of the year. */
async function oldRow(n: number, aggregate: string, row: Old): Promise<string> {
  const { status, retries = 0, retryAt, error, type = 'pair.updated' } = row;
  const ended = ['sent', 'dead_letter'].includes(status) ? minutes(n + 60) : null;
  const { rows } = await db.query<{ id: string }>(
    `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload, status, retry_count, next_retry_at, created_at, processed_at, error_message, error_details)
     VALUES ($1, 'pair', $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id`,
    [
      type,
      aggregate,
      { n, none: null },
      status,
      retries,
      retryAt ?? null,
      minutes(n),
      ended,
      error,
      error && { status: 500 },
    ],
  );
  return only(rows).id;
}

test('W6 W9 rows of every state move with their creation time, order and retry state; sent rows are archived; dead letters stay', async () => {
  const [one, two] = [randomUUID(), randomUUID()];
  const retryAt = new Date(Date.now() + 600_000);
  // written in another order than created
  await oldRow(5, one, { status: 'pending' });
  await oldRow(1, one, { status: 'dead_letter', retries: 5, error: 'gone' });
  const processing = await oldRow(2, one, { status: 'processing', retries: 1 });
  await oldRow(3, one, { status: 'sent' });
  await oldRow(4, one, { status: 'pending' });
  await oldRow(6, two, { status: 'failed', retries: 3, retryAt, error: 'not now' });
  await oldRow(7, two, { status: 'pending' });
  const role = `site_${randomUUID().slice(0, 8)}`;
  await db.query(`CREATE ROLE ${role}; GRANT INSERT ON webhook_outbox TO ${role}`);

  await db.query(upgrade);
  const rows = await site.rows();
  const shown = rows.map(({ payload, status, retry_count }) => [
    (payload as { n: number }).n,
    status,
    retry_count,
  ]);
  expect(shown.toSorted(([a], [b]) => Number(a) - Number(b))).toEqual([
    [1, 'dead_letter', 5],
    [2, 'pending', 0],
    [4, 'pending', 0],
    [5, 'pending', 0],
    [6, 'failed', 3],
    [7, 'pending', 0],
  ]);
  for (const { payload, created_at } of rows) {
    const { n } = payload as { n: number };
    expect(payload).toEqual({ n, none: null });
    expect(created_at.toISOString()).toBe(minutes(n));
  }
  expect(rows.find(({ status }) => status === 'failed')).toMatchObject({
    next_retry_at: retryAt,
    error_message: 'not now',
    error_details: { code: 'moved', response: '{"status": 500}' },
  });
  expect(rows.find(({ status }) => status === 'dead_letter')).toMatchObject({
    error_message: 'gone',
    processed_at: new Date(minutes(61)),
  });
  // the archive has every row as it was, and which message it became
  const { rows: archive } = await db.query<{ status: string; moved: boolean }>(
    `SELECT status, message_id IS NOT NULL AS moved FROM archive.webhook_outbox ORDER BY created_at`,
  );
  expect(archive.map(({ status }) => status)).toEqual([
    'dead_letter',
    'processing',
    'sent',
    'pending',
    'pending',
    'failed',
    'pending',
  ]);
  expect(archive.filter(({ moved }) => !moved)).toEqual([{ status: 'sent', moved: false }]);

  // what is due arrives in the order of each aggregate, with its own time; the event behind a retry waits for it
  await site.drain();
  expect(site.received.map(({ data }) => data['n'])).toEqual([2, 4, 5]);
  expect(site.received.map(({ timestamp }) => timestamp)).toEqual([2, 4, 5].map(minutes));
  const { rows: keys } = await db.query<{ dedupe_key: string }>(
    "SELECT dedupe_key FROM outbox.messages WHERE payload ->> 'n' = '2'",
  );
  expect(only(keys).dedupe_key).toBe(`webhook_outbox/${processing}`);

  // the count goes on: the fourth failure waits, the fifth is dead, and the next event of the aggregate arrives
  site.answer = ({ data }) => (data['n'] === 6 ? 500 : 200);
  for (const expected of ['failed', 'dead_letter']) {
    await db.query("SELECT outbox.retry_now('n8n')");
    await site.drain();
    expect(only(await site.rows("payload ->> 'n' = '6'"))).toMatchObject({ status: expected });
  }
  expect(only(await site.rows("payload ->> 'n' = '6'")).retry_count).toBe(5);
  await site.drain();
  expect(site.received.at(-1)?.data['n']).toBe(7);

  // the page shows the moved dead letter, and retries it
  const server = await serveDatabase(db);
  const ask = await server.as('operate');
  const { body } = await ask('GET', '/api/messages?status=dead');
  expect(JSON.stringify(body)).toContain('gone');
  const { body: groups } = await ask('GET', '/api/dead-letters/groups');
  expect(JSON.stringify(groups)).toContain('moved');
  const { id } = only(await site.rows("payload ->> 'n' = '1'"));
  site.answer = () => 200;
  await db.query("SELECT outbox.retry_dead_letters('n8n', ids => ARRAY[$1::uuid])", [id]);
  await site.drain();
  expect(only(await site.rows('id = $1', [id]))).toMatchObject({ status: 'sent', retry_count: 0 });

  // the rights of the table are those of the view
  const client = await db.connect();
  await client.query(`SET ROLE ${role}`);
  await client.query(
    `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload) VALUES ('pair.created', 'pair', $1, '{}')`,
    [randomUUID()],
  );
  await client.query('RESET ROLE');
  await db.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
});

test('W6 W9 nothing is lost or doubled when triggers insert before, during and after the upgrade', async () => {
  const register = (client: pg.Client, email: string) =>
    client.query(
      `INSERT INTO wp_user_registrations (user_id, user_email, registration_url, thankyou_page_url)
       VALUES (gen_random_uuid(), $1, '/join', '/thanks')`,
      [email],
    );
  const [open, during, upgrading] = await Promise.all([db.connect(), db.connect(), db.connect()]);
  // this session has a plan for the table
  await register(during, 'before');
  await open.query('BEGIN');
  await register(open, 'uncommitted');

  const [waits, inserts] = [await backendId(upgrading), await backendId(during)];
  const upgraded = upgrading.query(upgrade.replace(/^COMMIT;/m, ''));
  await waitUntilBlocked(db, waits);
  await open.query('COMMIT');
  await upgraded;
  const inserted = register(during, 'during');
  await waitUntilBlocked(db, inserts);
  await upgrading.query('COMMIT');
  await inserted;
  await register(open, 'after');

  expect(await site.drain()).toMatchObject({ processed: 4, succeeded: 4 });
  expect(site.received.map(({ data }) => String(data['email'])).toSorted()).toEqual([
    'after',
    'before',
    'during',
    'uncommitted',
  ]);
  const { rows } = await db.query('SELECT FROM archive.webhook_outbox');
  expect(rows).toHaveLength(2);
});

test('W6 nothing changes if something else uses the table, or a row cannot move or would not be sent', async () => {
  const unchanged = async () => {
    const { rows } = await db.query<{ kind: string; messages: number }>(
      `SELECT relkind AS kind, (SELECT count(*)::int FROM outbox.messages) AS messages
         FROM pg_class WHERE oid = 'public.webhook_outbox'::regclass`,
    );
    expect(rows).toEqual([{ kind: 'r', messages: 0 }]);
  };
  const refused = async (reason: RegExp) => {
    await expect(client.query(upgrade)).rejects.toThrow(reason);
    await client.query('ROLLBACK');
    await unchanged();
  };
  const client = await db.connect();
  await db.query('CREATE VIEW backlog AS SELECT count(*) FROM webhook_outbox');
  await refused(/these read webhook_outbox: backlog/);
  await db.query(`DROP VIEW backlog;
    CREATE FUNCTION oldest() RETURNS SETOF webhook_outbox LANGUAGE sql AS 'SELECT * FROM webhook_outbox LIMIT 1'`);
  await refused(/these read webhook_outbox: oldest\(\)/);
  await db.query(`DROP FUNCTION oldest;
    CREATE FUNCTION call() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER call AFTER INSERT ON webhook_outbox EXECUTE FUNCTION call()`);
  await refused(/webhook_outbox has these triggers: call/);
  await db.query('DROP FUNCTION call CASCADE');
  const registered = await oldRow(1, randomUUID(), { status: 'pending', type: 'user.registered' });
  await site.setRollout('50');
  await refused(/registrations is below 100/);
  await db.query("UPDATE webhook_outbox SET status = 'sent' WHERE id = $1", [registered]);
  await oldRow(2, randomUUID(), { status: 'pending', type: 'not a topic' });
  await refused(/topic "not a topic" is malformed/);
  await db.query(
    "UPDATE webhook_outbox SET event_type = 'lead.created', status = 'dead_letter' WHERE status <> 'sent'",
  );
  await refused(/no route leads to n8n .* lead\.created/);
});

test('W6 the old table moves in batches: 1,200 rows keep the order of their creation', async () => {
  await db.query(
    `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload, created_at)
     SELECT 'pair.updated', 'pair', md5((n % 300)::text)::uuid, jsonb_build_object('n', n), now() - n * interval '1 second'
       FROM generate_series(1, 1200) n`,
  );
  await db.query(upgrade);
  expect(await site.drain()).toMatchObject({ processed: 1200, succeeded: 1200 });
  for (let aggregate = 0; aggregate < 300; aggregate += 1) {
    const order = site.received
      .map(({ data }) => Number(data['n']))
      .filter((n) => n % 300 === aggregate);
    expect(order).toEqual(order.toSorted((a, b) => b - a));
  }
});

test('W6 events of one transaction have one created_at, and keep the order of their ids for each aggregate', async () => {
  await db.query(
    `INSERT INTO webhook_outbox (id, event_type, aggregate_type, aggregate_id, payload)
     SELECT id, 'pair.updated', 'pair', md5((n % 3)::text)::uuid, jsonb_build_object('id', id, 'n', n % 3)
       FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, 1200) n) x`,
  );
  await db.query(upgrade);
  expect(await site.drain()).toMatchObject({ processed: 1200, succeeded: 1200 });
  for (const aggregate of [0, 1, 2]) {
    const ids = site.received
      .filter(({ data }) => data['n'] === aggregate)
      .map(({ data }) => String(data['id']));
    expect(ids).toHaveLength(400);
    expect(ids).toEqual(ids.toSorted());
  }
});

test.skipIf(!hasPrograms({ psql: 'postgresql-client-15' }))(
  'W6 psql runs the file as UPGRADE.md says',
  async () => {
    await oldRow(1, randomUUID(), { status: 'pending' });
    const { status, stderr } = spawnSync(
      'psql',
      ['--no-psqlrc', '--quiet', '--file', path.join(folder, 'upgrade.sql'), db.url],
      { encoding: 'utf8' },
    );
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(await site.rows()).toMatchObject([{ status: 'pending' }]);
  },
);
