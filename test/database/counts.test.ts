// Counts of growing tables: exact up to 10,000, at a destination or over all, and above that estimates that are never
// lower. They are read from indexes, whatever other destinations hold.

import { expect, it } from 'vitest';

import { groupDeadLetters } from '../../src/features/dead-letters/database.js';
import { readDestinations, readHealth } from '../../src/listing/reports.js';
import { alertsOf, readAlerts } from '../../src/features/alerts/database.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase();

async function counts(id: number): Promise<{ waiting: number; retrying: number; dead: number }> {
  const { rows } = await db.query<{ waiting: number; retrying: number; dead: number }>(
    `SELECT ${db.quoted}.count_waiting($1)::int AS waiting, ${db.quoted}.count_retrying($1)::int AS retrying, ${db.quoted}.count_dead($1)::int AS dead`,
    [id],
  );
  return only(rows);
}

/** Rows as a relay would leave them, of messages that are not otherwise used. */
async function fill(id: number, { plain = 0, keyed = 0, dead = 0 }): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, tries, bytes, namespace)
     SELECT ${db.quoted}.new_id(), $1, now() + interval '1 day', n % 2, 1, 'default' FROM generate_series(1, $2::int) n`,
    [id, plain],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, tries, bytes, namespace, key_id, sequence)
     SELECT ${db.quoted}.new_id(), $1, now() + interval '1 day', 0, 1, 'default', 1000000 + n, 1 FROM generate_series(1, $2::int) n`,
    [id, keyed],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code)
     SELECT ${db.quoted}.new_id(), $1, now(), 1, 1, 'rejected', CASE WHEN n % 10 = 0 THEN 'rare' WHEN n % 100 <> 1 THEN 'common' END FROM generate_series(1, $2::int) n`,
    [id, dead],
  );
}

it('P14 W7 counts are exact up to 10,000, and estimates above are never lower', async () => {
  const few = await makeQueue(db);
  const many = await makeQueue(db);
  await fill(few.id, { plain: 300, keyed: 200, dead: 100 });
  await fill(many.id, { plain: 15_000, keyed: 5000, dead: 20_000 });
  await db.query(`ANALYZE ${db.quoted}.deliveries`);
  await db.query(`ANALYZE ${db.quoted}.dead_letters`);
  expect(await counts(few.id)).toEqual({ waiting: 500, retrying: 150, dead: 100 });
  const estimated = await counts(many.id);
  expect(estimated.retrying).toBe(7500);
  for (const count of [estimated.waiting, estimated.dead]) {
    expect(count).toBeGreaterThan(17_000);
    expect(count).toBeLessThan(23_000);
  }
  // without statistics of the planner the count is at least the bound
  const fresh = await makeQueue(db);
  await fill(fresh.id, { plain: 10_001 });
  expect((await counts(fresh.id)).waiting).toBeGreaterThanOrEqual(10_000);
  const reported = await readDestinations(openDatabase(db));
  expect(reported.find(({ name }) => name === few.name)).toMatchObject({
    waiting: 500,
    retrying: 150,
    dead: 100,
  });
});

it('P14 W7 health counts all pending deliveries once: exactly up to 10,000, and estimated above', async () => {
  await db.query(`DELETE FROM ${db.quoted}.deliveries`);
  const health = async () => {
    const metrics = await readHealth(openDatabase(db));
    return ['waiting', 'retrying'].map(
      (name) => metrics.find(({ metric }) => metric === name)?.value,
    );
  };
  expect(await health()).toEqual([0, 0]);
  // many destinations, of which none is above the bound
  for (let n = 0; n < 9; n += 1) await fill((await makeQueue(db)).id, { plain: 1000, keyed: 111 });
  expect(await health()).toEqual([9999, 4500]);
  for (let n = 0; n < 14; n += 1) await fill((await makeQueue(db)).id, { plain: 1000 });
  await db.query(`ANALYZE ${db.quoted}.deliveries`);
  const [waiting = 0, retrying = 0] = await health();
  expect(Math.abs((waiting ?? 0) - 23_999) / 23_999).toBeLessThan(0.1);
  expect(Math.abs((retrying ?? 0) - 11_500) / 11_500).toBeLessThan(0.1);
});

it('P14 W7 health and alerts look at the most urgent of many endpoints, running and paused, and at all destinations of configurations', async () => {
  await db.query(`DELETE FROM ${db.quoted}.deliveries`);
  const configured = await makeQueue(db);
  await fill(configured.id, { plain: 1 });
  await db.query(
    `WITH made AS (
       INSERT INTO ${db.quoted}.destinations (name, kind, origin, paused_at, max_attempts, retry_base_ms, retry_max_ms, when_dead)
       SELECT 'shop-' || n, 'endpoint', 'database', CASE WHEN n % 2 = 0 THEN now() END, 10, 1000, 300000, 'continue'
         FROM generate_series(1, 600) n
       RETURNING id, name)
     INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, bytes, namespace)
     SELECT ${db.quoted}.new_id(), m.id, now() - substr(m.name, 6)::int * interval '10 minutes', 1, 'default' FROM made m`,
  );
  // the key of one endpoint was not looked at by a relay yet
  await db.query(
    `WITH waiting AS (
       UPDATE ${db.quoted}.deliveries d SET key_id = 77, sequence = 1
         FROM ${db.quoted}.destinations t WHERE t.id = d.destination_id AND t.name = 'shop-598'
       RETURNING d.destination_id)
     INSERT INTO ${db.quoted}.lane_tickets (destination_id, key_id) SELECT destination_id, 77 FROM waiting`,
  );
  const { rows } = await db.query<{ name: string }>(
    `SELECT t.name FROM ${db.quoted}.urgent_destinations() u(id) JOIN ${db.quoted}.destinations t ON t.id = u.id`,
  );
  const late = Array.from({ length: 500 }, (_, n) => `shop-${600 - n}`);
  expect(rows.map(({ name }) => name).toSorted()).toEqual([configured.name, ...late].toSorted());
  const database = openDatabase(db);
  const health = await readHealth(database);
  expect(health.find(({ metric }) => metric === 'waiting')?.value).toBe(601);
  const oldest = health.find(({ metric }) => metric === 'oldest_waiting_seconds');
  // the oldest running endpoint has the number 599, the oldest paused one 600
  expect(Math.round(Number(oldest?.value) / 600)).toBe(600);
  expect(oldest?.alarm).toContain('and 240 other destinations');
  const alerts = await alertsOf(database, health);
  const firing = (name: string) => alerts.find(({ alert }) => alert === name);
  expect(firing('oldest_waiting_seconds')).toMatchObject({ destination: 'shop-599' });
  expect(firing('paused_waiting')).toMatchObject({ value: 250 });
  await db.query(`DELETE FROM ${db.quoted}.deliveries`);
  await db.query(`DELETE FROM ${db.quoted}.lane_tickets`);
});

it('P14 the count of a destination uses an index, whatever other destinations hold', async () => {
  const none = await makeQueue(db);
  await fill((await makeQueue(db)).id, { plain: 5000, dead: 5000 });
  for (const [condition, table] of [
    ['key_id IS NULL', 'deliveries'],
    ['key_id IS NOT NULL', 'deliveries'],
    ['tries > 0', 'deliveries'],
    ['true', 'dead_letters'],
  ]) {
    const { rows } = await db.query<{ 'QUERY PLAN': string }>(
      `EXPLAIN (COSTS off) SELECT FROM ${db.quoted}.${table} WHERE destination_id = ${none.id} AND ${condition} LIMIT 10000`,
    );
    expect(rows.map((row) => row['QUERY PLAN']).join('\n')).toMatch(/Index.* Scan/);
  }
  expect(await counts(none.id)).toEqual({ waiting: 0, retrying: 0, dead: 0 });
});

it('W5 groups above the bound share the rest of the dead letters', async () => {
  const queue = await makeQueue(db);
  await db.query(`DELETE FROM ${db.quoted}.dead_letters`);
  await fill(queue.id, { dead: 1000 });
  const groups = async (countedAtMost?: number) =>
    Object.fromEntries(
      (await groupDeadLetters(openDatabase(db), {}, countedAtMost)).map(({ errorCode, count }) => [
        errorCode ?? '',
        count,
      ]),
    );
  expect(await groups()).toEqual({ common: 890, rare: 100, '': 10 });
  // one group is above the bound: it has the rest, whatever the planner estimates
  expect(await groups(200)).toEqual({ common: 890, rare: 100, '': 10 });
  const { common = 0, rare = 0, ...others } = await groups(50);
  expect(others).toEqual({ '': 10 });
  expect(rare).toBeGreaterThanOrEqual(50);
  expect(common + rare).toBeGreaterThanOrEqual(989);
  expect(common).toBeGreaterThan(rare);
});

it('P14 W7 the alerts of a health that was read before equal those of SQL', async () => {
  const database = openDatabase(db);
  const health = await readHealth(database);
  const alerts = await alertsOf(database, health);
  const { rows } = await db.query<{ metric: string; value: string }>(
    `SELECT metric, value FROM ${db.quoted}.health WHERE metric IN ('waiting', 'dead')`,
  );
  for (const { metric, value } of rows)
    expect(health.find((row) => row.metric === metric)?.value).toBe(Number(value));
  const others = ({ alert }: { alert: string }) => alert !== 'oldest_waiting_seconds';
  expect(alerts.filter(others)).toEqual((await readAlerts(database)).filter(others));
});

it('P14 W7 the dead letters of all destinations are the sum of those of each, whatever they hold', async () => {
  await db.query(`DELETE FROM ${db.quoted}.dead_letters`);
  const both = async () => {
    const { rows } = await db.query<{ all: number; sum: number }>(
      `SELECT ${db.quoted}.count_all_dead()::int AS all,
              (SELECT coalesce(sum(${db.quoted}.count_dead(t.id)), 0)::int FROM ${db.quoted}.destinations t) AS sum`,
    );
    return only(rows);
  };
  expect(await both()).toEqual({ all: 0, sum: 0 });
  // a read ends within a destination, at its end, and behind one that fills it or more
  for (const dead of [1, 3000, 6999, 1, 9999, 10_000, 0, 2, 10_001, 25_000, 3, 9999]) {
    await fill((await makeQueue(db)).id, { dead });
    await db.query(`ANALYZE ${db.quoted}.dead_letters`);
    const { all, sum } = await both();
    expect(all).toBe(sum);
  }
  const health = await readHealth(openDatabase(db));
  expect(health.find(({ metric }) => metric === 'dead')?.value).toBe((await both()).sum);
  // more letters are not all read: the planner's estimate counts those of the last destinations too
  for (let n = 0; n < 8; n += 1) await fill((await makeQueue(db)).id, { dead: 9000 });
  const counted = (await both()).all;
  await db.query(`ANALYZE ${db.quoted}.dead_letters`);
  const { all, sum } = await both();
  expect([counted < sum, Math.abs(all - sum) / sum < 0.02]).toEqual([true, true]);
});

it('P14 health and alerts do not visit each endpoint that has dead letters', async () => {
  await db.query(`DELETE FROM ${db.quoted}.dead_letters`);
  await db.query(
    `WITH made AS (
       INSERT INTO ${db.quoted}.destinations (name, kind, max_attempts, retry_base_ms, retry_max_ms, origin)
       SELECT 'endpoint-' || n, 'endpoint', 1, 0, 0, 'database' FROM generate_series(1, 2000) n
       RETURNING id)
     INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason)
     SELECT ${db.quoted}.new_id(), id, now() - interval '1 hour', 1, 1, 'rejected' FROM made`,
  );
  await db.query(`ANALYZE ${db.quoted}.destinations, ${db.quoted}.dead_letters`);
  const client = await db.connect();
  const visits = async (table: string) => {
    const { rows } = await client.query<{ scans: number; rows: number }>(
      `SELECT idx_scan::int AS scans, seq_tup_read::int AS rows FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname = $2`,
      [db.schema, table],
    );
    return only(rows);
  };
  await client.query('BEGIN');
  const dead = await visits('dead_letters');
  const destinations = await visits('destinations');
  await client.query(`SELECT * FROM ${db.quoted}.alerts()`);
  const scans = (await visits('dead_letters')).scans - dead.scans;
  const rows = (await visits('destinations')).rows - destinations.rows;
  await client.query('ROLLBACK');
  expect(scans).toBeLessThan(100);
  expect(rows).toBeLessThan(2000);
});
