// The table webhook_outbox of the registrations site, which is a view over Waybill: inserts as its triggers make them,
// as a role with no other right, and what the view shows.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { park } from '../support/letters.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { registrationsSite } from '../support/registrations.js';
import { addHistory, rowsRead } from '../support/rows-read.js';

const db = testDatabase();
const site = registrationsSite(db);
const role = `site_${randomUUID().slice(0, 8)}`;
let asSite: pg.Client;

beforeAll(async () => {
  await db.query(`CREATE ROLE ${role};
    GRANT INSERT, SELECT (id, status, retry_count, max_retries, created_at) ON webhook_outbox TO ${role};
    GRANT INSERT, SELECT, UPDATE ON wp_user_registrations TO ${role}`);
  asSite = await db.connect();
  await asSite.query(`SET ROLE ${role}`);
});
afterAll(async () => {
  await asSite.query('RESET ROLE');
  await db.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
});

const insert = `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload) VALUES ($1, $2, $3, $4)`;

test('W9 an insert of the four columns enqueues, as a role that may only insert', async () => {
  const id = randomUUID();
  await asSite.query(insert, ['pair.created', 'pair', id, { pair_id: id }]);
  expect(await site.rows('aggregate_id = $1', [id])).toMatchObject([
    {
      event_type: 'pair.created',
      aggregate_type: 'pair',
      payload: { pair_id: id },
      status: 'pending',
      retry_count: 0,
      max_retries: 5,
      next_retry_at: null,
      processed_at: null,
      error_message: null,
      error_details: null,
    },
  ]);
  await site.drain();
  expect(site.received.map(({ data }) => data)).toEqual([{ pair_id: id }]);
  expect(only(await site.rows('aggregate_id = $1', [id])).status).toBe('sent');
});

test('W9 a trigger of the site inserts with the same rights', async () => {
  const { rows } = await asSite.query<{ id: string }>(
    `INSERT INTO wp_user_registrations (user_id, user_email, registration_url, thankyou_page_url)
     VALUES (gen_random_uuid(), 'ada@example.com', '/join', '/thanks') RETURNING id`,
  );
  expect(await site.rows('aggregate_id = $1', [only(rows).id])).toHaveLength(1);
});

test('W9 RETURNING gives the id of the message and the defaults, for several rows in their order', async () => {
  const ids = [randomUUID(), randomUUID(), randomUUID()];
  const { rows } = await asSite.query<{ id: string; status: string }>(
    `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload)
     SELECT 'pair.created', 'pair', i, jsonb_build_object('n', n) FROM unnest($1::uuid[]) WITH ORDINALITY u(i, n)
     RETURNING id, status, retry_count, max_retries, created_at > now() - interval '1 minute' AS fresh`,
    [ids],
  );
  expect(rows).toMatchObject(
    Array.from({ length: 3 }, () => ({
      status: 'pending',
      retry_count: 0,
      max_retries: 5,
      fresh: true,
    })),
  );
  const stored = await site.rows('id = ANY ($1)', [rows.map(({ id }) => id)]);
  expect(stored.map(({ aggregate_id }) => aggregate_id)).toEqual(ids);
  expect(stored.map(({ payload }) => payload)).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }]);
});

test('W9 two equal events of one aggregate in one statement are two events', async () => {
  const id = randomUUID();
  await asSite.query(
    `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload)
     VALUES ('user.registered', 'user', $1, '{}'), ('user.registered', 'user', $1, '{}')`,
    [id],
  );
  expect(await site.rows('aggregate_id = $1', [id])).toHaveLength(2);
});

test('W9 a row with its own created_at keeps it, in the table and in the body', async () => {
  await site.drain();
  site.received.length = 0;
  const dates = [
    '2026-01-03T00:00:00.123Z',
    '2026-01-01T12:00:00.000Z',
    '2026-01-02T00:00:00.000Z',
  ];
  for (const date of dates)
    await asSite.query(
      `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload, created_at)
       VALUES ('pair.created', 'pair', gen_random_uuid(), $1, $2)`,
      [{ date }, date],
    );
  const future = new Date(Date.now() + 86_400_000).toISOString();
  await asSite.query(
    `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload, created_at)
     VALUES ('pair.created', 'pair', gen_random_uuid(), $1, $2)`,
    [{ date: future }, future],
  );
  const rows = await site.rows("payload ? 'date'");
  expect(rows.map(({ created_at }) => created_at.toISOString())).toEqual([...dates, future]);
  await site.drain();
  expect(site.received).toHaveLength(4);
  for (const { data, timestamp } of site.received) expect(timestamp).toBe(data['date']);
});

test('W9 a rollback leaves nothing', async () => {
  const before = await site.rows();
  await asSite.query('BEGIN');
  await asSite.query(insert, ['pair.created', 'pair', randomUUID(), {}]);
  await asSite.query('ROLLBACK');
  expect(await site.rows()).toHaveLength(before.length);
});

test.each([
  ['id', randomUUID()],
  ['status', 'sent'],
  ['retry_count', 3],
  ['max_retries', 9],
  ['processed_at', '2026-01-01T00:00:00Z'],
  ['error_message', 'no'],
  ['error_details', { code: 1 }],
])('W9 an insert with %s is refused with the reason', async (column, value) => {
  await expect(
    db.query(
      `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload, ${column})
       VALUES ('pair.created', 'pair', gen_random_uuid(), '{}', $1)`,
      [value],
    ),
  ).rejects.toThrow(new RegExp(`^${column} is .*: leave it out of the insert`));
});

test('W9 the role can do nothing else: not read, not enqueue by itself, not use the function elsewhere', async () => {
  const refused = { code: '42501' };
  await expect(asSite.query('SELECT payload FROM webhook_outbox')).rejects.toMatchObject(refused);
  // it may read these columns of the view, which gives no rights on Waybill's tables
  await expect(asSite.query('SELECT id, status FROM webhook_outbox')).rejects.toMatchObject(
    refused,
  );
  await expect(asSite.query("SELECT outbox.enqueue('pair.created', '{}')")).rejects.toMatchObject(
    refused,
  );
  await asSite.query('CREATE TEMPORARY TABLE mine (id uuid)');
  await expect(
    asSite.query(
      'CREATE TRIGGER t BEFORE INSERT ON mine FOR EACH ROW EXECUTE FUNCTION webhook_outbox_insert()',
    ),
  ).rejects.toMatchObject(refused);
  const stranger = `stranger_${randomUUID().slice(0, 8)}`;
  await db.query(`CREATE ROLE ${stranger}`);
  const client = await db.connect();
  await client.query(`SET ROLE ${stranger}`);
  await expect(
    client.query(insert, ['pair.created', 'pair', randomUUID(), {}]),
  ).rejects.toMatchObject(refused);
  await client.query('RESET ROLE');
  await db.query(`DROP ROLE ${stranger}`);
});

test('W5 W9 the view shows an event without a route as pending, and not one that an operator deleted', async () => {
  const [unrouted, deleted] = [randomUUID(), randomUUID()];
  await asSite.query(insert, ['order.created', 'order', unrouted, {}]);
  expect(only(await site.rows('aggregate_id = $1', [unrouted])).status).toBe('pending');
  await asSite.query(insert, ['pair.created', 'pair', deleted, {}]);
  const { id } = only(await site.rows('aggregate_id = $1', [deleted]));
  await db.query('SELECT outbox.cancel($1)', [id]);
  expect(await site.rows('aggregate_id = $1', [deleted])).toEqual([]);
});

test('W5 an update or a deletion is refused, and the call in the hint does it', async () => {
  /** What PostgreSQL recommends, without the advice to use the page. */
  const hintOf = async (sql: string, id: string) => {
    const error: unknown = await db.query(sql, [id]).catch((reason: unknown) => reason);
    const { code, hint = '' } = error as { code?: string; hint?: string };
    expect(code).toBe('0A000');
    const [, call = ''] = /: (SELECT .*), or use the page/.exec(hint) ?? [];
    return call;
  };
  const update = "UPDATE webhook_outbox SET status = 'pending' WHERE id = $1";
  const remove = 'DELETE FROM webhook_outbox WHERE id = $1';
  const add = async () => {
    const { rows } = await asSite.query<{ id: string }>(`${insert} RETURNING id`, [
      'pair.created',
      'pair',
      randomUUID(),
      {},
    ]);
    return only(rows).id;
  };
  const shown = async (id: string) => (await site.rows('id = $1', [id])).map((row) => row.status);
  const [waiting, failing] = [await add(), await add()];
  await db.query(await hintOf(remove, waiting));
  expect(await shown(waiting)).toEqual([]);

  site.answer = () => 500;
  for (let failures = 1; failures <= 5; failures += 1) {
    await site.drain();
    if (failures < 5) await db.query(await hintOf(update, failing));
  }
  expect(await shown(failing)).toEqual(['dead_letter']);
  await db.query(await hintOf(update, failing));
  expect(await shown(failing)).toEqual(['pending']);
  for (let failures = 1; failures <= 5; failures += 1) {
    await site.drain();
    await db.query("SELECT outbox.retry_now('n8n')");
  }
  await db.query(await hintOf(remove, failing));
  expect(await shown(failing)).toEqual([]);
});

test.each(['event_type', 'aggregate_type', 'aggregate_id', 'payload'])(
  'W9 an insert without %s is refused by its name, and leaves nothing',
  async (column) => {
    const values = {
      event_type: 'pair.created',
      aggregate_type: 'pair',
      aggregate_id: randomUUID(),
      payload: {},
      [column]: null,
    };
    const before = await site.rows();
    await expect(asSite.query(insert, Object.values(values))).rejects.toMatchObject({
      code: '23502',
      message: `${column} is null: every row of webhook_outbox has one`,
    });
    expect(await site.rows()).toHaveLength(before.length);
  },
);

test('W5 W9 an event that was replayed is one row, which is processing and sent again, or deleted', async () => {
  const id = randomUUID();
  await asSite.query(insert, ['pair.created', 'pair', id, {}]);
  await site.drain();
  const row = only(await site.rows('aggregate_id = $1', [id]));
  const replay = async () => {
    const { rows } = await db.query<{ replay_id: string }>(
      "SELECT replay_id FROM outbox.start_replay('n8n', ids => ARRAY[$1::uuid])",
      [row.id],
    );
    await db.query('SELECT outbox.replay_step($1)', [only(rows).replay_id]);
  };
  const shown = async () =>
    (await site.rows('aggregate_id = $1', [id])).map(({ status, retry_count }) => [
      status,
      retry_count,
    ]);
  await replay();
  expect(await shown()).toEqual([['pending', 0]]);
  const token = randomUUID();
  await db.query("SELECT outbox.claim('n8n', $1, 10)", [token]);
  expect(await shown()).toEqual([['processing', 0]]);
  await db.query("SELECT outbox.mark_delivered($1, ARRAY[$2::uuid], 'n8n')", [token, row.id]);
  expect(await shown()).toEqual([['sent', 0]]);
  await replay();
  await db.query('SELECT outbox.cancel($1)', [row.id]);
  expect(await shown()).toEqual([]);
  // parked behind a dead letter of its aggregate: no attempt says so
  await replay();
  await site.drain();
  await replay();
  await park(db, row.id);
  expect(await shown()).toEqual([['dead_letter', 0]]);
});

test('W9 a message of another producer, whose header is no time, does not break the view', async () => {
  const before = Date.now();
  for (const time of ['noon', '2026-13-45T00:00:00Z', 'now', '01/02/2026'])
    await db.query("SELECT outbox.enqueue('pair.created', $1, headers => $2)", [
      { time },
      { time },
    ]);
  const rows = await site.rows("payload ? 'time'");
  expect(rows).toHaveLength(4);
  for (const { created_at } of rows) expect(created_at.getTime()).toBeGreaterThan(before - 60_000);
});

test('W9 a message of another producer, whose aggregate has no uuid, does not break the view', async () => {
  const { rows } = await db.query<{ id: string }>(
    "SELECT id FROM outbox.enqueue('pair.created', '{}', aggregate_type => 'pair', aggregate_id => '17')",
  );
  expect(only(await site.rows('id = $1', [only(rows).id])).aggregate_id).toBeNull();
});

test('W1 W5 plain lists and statuses read only the events that they show', async () => {
  const kept = await addHistory(db.pool, 'n8n', { topic: 'pair.updated' });
  await asSite.query(insert, ['pair.created', 'pair', randomUUID(), {}]);
  const list = 'SELECT * FROM webhook_outbox';
  for (const query of [
    `${list} ORDER BY created_at DESC LIMIT 50`,
    `${list} ORDER BY created_at LIMIT 50`,
    `${list} WHERE aggregate_type = 'user' AND aggregate_id = '${randomUUID()}'`,
    `${list} WHERE event_type = 'pair.deleted'`,
    `${list} WHERE id = '${randomUUID()}'`,
    `${list} WHERE created_at < '2020-01-01'`,
    ...['pending', 'failed', 'processing', 'dead_letter'].map(
      (status) => `${list} WHERE status = '${status}'`,
    ),
  ])
    expect(await rowsRead(db.pool, query), query).toBeLessThan(200);
  // the measure finds a query that reads everything, and that reads each table once
  const count = await rowsRead(
    db.pool,
    'SELECT status, count(*) FROM webhook_outbox GROUP BY status',
  );
  expect(count).toBeGreaterThanOrEqual(kept);
  expect(count).toBeLessThan(kept + 1000);
});
