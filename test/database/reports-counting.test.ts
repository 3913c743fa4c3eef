// Counting for reports: each message and each attempt exactly once, whatever commits late, crashes or runs at the same
// time; with a bounded number of rows.

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { readReport } from '../../src/features/reports/report.js';
import type { CountRow, DestinationRow, Report } from '../../src/features/reports/report.js';
import type { ReportBy } from '../../src/features/reports/database.js';
import { makeDead } from '../support/letters.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { makeRelay, openDatabase } from '../support/relay.js';
import { fillNow, writeMessages } from '../support/reports.js';
import { settle } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ eachTestFrom: async () => {} });

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;
const ago = (ms: number) => new Date(Date.now() - ms);

async function report(by: ReportBy, from = ago(dayMs), to = ago(-minuteMs)): Promise<Report> {
  return readReport(openDatabase(db, 'test_server'), by, { from, to, limit: 1001 });
}

/** The counts of a report by name. */
async function counts(by: 'topics' | 'tenants', from?: Date, to?: Date) {
  const { rows } = await report(by, from, to);
  return Object.fromEntries(
    (rows as CountRow[]).map(({ name, messages }) => [name ?? '(others)', messages]),
  );
}

describe('messages', () => {
  it('W5 are counted once by topic and tenant, also if the counting is repeated', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(3, { tenantId: 'acme' });
    await queue.enqueue(2);
    await queue.enqueue(4, { topic: 'nobody.listens', tenantId: 'acme' });
    await fillNow(db);
    await fillNow(db);
    expect(await counts('topics')).toEqual({ [queue.topic]: 5, 'nobody.listens': 4 });
    expect(await counts('tenants')).toEqual({ acme: 7, '': 2 });
    await queue.enqueue(1);
    await fillNow(db);
    expect(await counts('tenants')).toEqual({ acme: 7, '': 3 });
    const { completeTo, total } = await report('topics');
    expect(Date.now() - (completeTo?.getTime() ?? 0)).toBeLessThan(20_000);
    expect(total).toMatchObject({ messages: 10 });
  });

  it('W5 are counted a piece at a time', async () => {
    await writeMessages(db, { from: ago(40 * minuteMs), count: 1500, topic: 'many' });
    // 1,500 seconds are three or four slices of 10 minutes
    expect(await fillNow(db, 100)).toBeGreaterThanOrEqual(15);
    expect(await counts('topics')).toEqual({ many: 1500 });
  });

  it('W5 of a transaction that commits late are counted, and the report says how far it is complete', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await enqueueMany(db, client, [{ topic: 'late' }]);
    const opened = Date.now();
    await enqueueMany(db, db.pool, [{ topic: 'early' }]);
    await fillNow(db);
    const { completeTo } = await report('topics');
    expect(completeTo?.getTime() ?? 0).toBeLessThan(opened);
    await client.query('COMMIT');
    await fillNow(db);
    await fillNow(db);
    expect(await counts('topics')).toEqual({ early: 1, late: 1 });
  });

  it('W5 that are tests of a destination and commit late are counted', async () => {
    const queue = await makeQueue(db);
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.send_test($1)`, [queue.name]);
    await enqueueMany(db, db.pool, [{ topic: 'early' }]);
    await fillNow(db);
    await client.query('COMMIT');
    await fillNow(db);
    await fillNow(db);
    expect(await counts('topics')).toEqual({ early: 1, 'waybill.test': 1 });
  });

  it('W5 whose producer waits for another one, with ids of the time before, are counted', async () => {
    const [first, second] = [await db.connect(), await db.connect()];
    await first.query('BEGIN');
    // only the key: a message of its own would hold the counting back too
    await first.query(
      `INSERT INTO ${db.quoted}.dedupe_keys (message_id, namespace, topic, dedupe_key)
       VALUES (gen_random_uuid(), 'default', 'waited', 'same')`,
    );
    const waiting = enqueueMany(db, second, [{ topic: 'waited', dedupeKey: 'same' }]);
    await waitFor(
      async () =>
        only(
          (
            await db.query<{ waits: boolean }>(
              `SELECT count(*) > 0 AS waits FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'`,
            )
          ).rows,
        ).waits,
      { what: 'the second producer waits' },
    );
    await enqueueMany(db, db.pool, [{ topic: 'another' }]);
    await fillNow(db);
    await first.query('ROLLBACK');
    await waiting;
    await fillNow(db);
    await fillNow(db);
    expect(await counts('topics')).toEqual({ another: 1, waited: 1 });
  });

  it('W5 are not held back by a reader with a long transaction, such as a dump', async () => {
    const dump = await db.connect();
    await dump.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await dump.query(`SELECT FROM ${db.quoted}.message_limits`);
    await enqueueMany(db, db.pool, [{ topic: 'counted' }]);
    await fillNow(db);
    expect(await counts('topics')).toEqual({ counted: 1 });
    await dump.query('ROLLBACK');
  });

  it('W5 are counted again if the counting was rolled back, and by one session at a time', async () => {
    await enqueueMany(db, db.pool, [{ topic: 'once' }, { topic: 'once' }]);
    const crashed = await db.connect();
    await crashed.query('BEGIN');
    const fill = `SELECT ${db.quoted}.fill_reports(1, '0') AS more`;
    expect((await crashed.query(fill)).rows).toEqual([{ more: true }]);
    expect((await db.query(fill)).rows).toEqual([{ more: false }]);
    expect(await counts('topics')).toEqual({});
    await crashed.query('ROLLBACK');
    await fillNow(db, 1);
    expect(await counts('topics')).toEqual({ once: 2 });
  });

  it('W5 with a clock that was set back are counted again from the beginning of the day', async () => {
    await enqueueMany(db, db.pool, [{ topic: 'before' }]);
    await fillNow(db);
    // as if the clock had run ahead by two hours meanwhile
    await db.query(
      `UPDATE ${db.quoted}.report_progress
          SET counted_to = now() + interval '2 hours', position = ${db.quoted}.id_at(now() + interval '2 hours')`,
    );
    await enqueueMany(db, db.pool, [{ topic: 'after' }]);
    await fillNow(db);
    expect(await counts('topics')).toEqual({ before: 1, after: 1 });
  });

  it('W5 of many tenants keep the number of rows bounded, and the sum exact', async () => {
    const from = new Date(Math.floor(Date.now() / hourMs) * hourMs - hourMs);
    await db.query(`SELECT ${db.quoted}.make_partitions(2, (now() AT TIME ZONE 'UTC')::date - 1)`);
    // the tenants 1 to 2,500 have one message each, and the last ten have 20 more
    await db.query(
      `INSERT INTO ${db.quoted}.messages (id, created_at, transaction_id, bytes, namespace, topic, tenant_id, payload)
       SELECT overlay(${db.quoted}.id_at($1::timestamptz + n * interval '1 ms')::text
                PLACING substr(gen_random_uuid()::text, 20) FROM 20)::uuid,
              $1, pg_current_xact_id(), 4, 'default', 'x', 'tenant ' || least(n, 2491 + n % 10), 'null'
         FROM generate_series(1, 2700) n`,
      [from],
    );
    await fillNow(db, 500);
    const { rows } = await db.query<{ step: number; names: number; sum: number }>(
      `SELECT step, count(name)::int AS names, sum(count)::int AS sum FROM ${db.quoted}.report_counts
        WHERE kind = 'tenant' GROUP BY step ORDER BY step`,
    );
    expect(rows.slice(0, 2)).toEqual([
      { step: 600, names: 2000, sum: 2700 },
      { step: 3600, names: 1000, sum: 2700 },
    ]);
    const { total, rows: shown } = await report('tenants');
    expect(total).toMatchObject({ messages: 2700 });
    expect(shown).toHaveLength(1001);
    expect(shown.at(-1)).toMatchObject({ name: null });
  });
});

describe('periods', () => {
  it('W5 of any length equal the log, before and after shorter slices are deleted', async () => {
    const now = Date.now();
    for (const [days, topic] of [
      [36, 'a'],
      [5, 'b'],
      [3, 'a'],
      [1, 'b'],
    ] as const)
      await writeMessages(db, {
        from: new Date(now - days * dayMs - 40 * minuteMs),
        count: 5000,
        topic,
      });
    await writeMessages(db, { from: new Date(now - 90 * minuteMs), count: 5000, topic: 'a' });
    await fillNow(db, 1000);
    const { rows } = await db.query<{ step: number; oldest: number }>(
      `SELECT step, floor(extract(epoch FROM now() - min(slice)) / 86400)::int AS oldest
         FROM ${db.quoted}.report_counts GROUP BY step ORDER BY step`,
    );
    expect(rows).toEqual([
      { step: 600, oldest: 1 },
      { step: 3600, oldest: 5 },
      // a day in UTC begins up to a day before its first message
      { step: 86_400, oldest: expect.toSatisfy((days: number) => days >= 36) as number },
    ]);
    const periods = [
      [new Date(now - hourMs), new Date(now)],
      [new Date(now - 26 * hourMs), new Date(now - 23 * hourMs)],
      [new Date(now - 3 * dayMs - 20 * minuteMs), new Date(now - dayMs)],
      [new Date(now - 6 * dayMs), new Date(now - 12 * hourMs)],
      [new Date(now - 30 * dayMs), new Date(now)],
      [new Date(now - 40 * dayMs), new Date(now)],
      [new Date(now - 40 * dayMs), new Date(now - 35 * dayMs)],
    ] as const;
    for (const [from, to] of periods) {
      const found = await report('topics', from, to);
      expect(found.from.getTime()).toBeLessThanOrEqual(from.getTime());
      expect(found.to.getTime()).toBeGreaterThanOrEqual(to.getTime());
      const { rows: log } = await db.query<{ topic: string; messages: number }>(
        `SELECT topic, count(*)::int AS messages FROM ${db.quoted}.messages
          WHERE id >= ${db.quoted}.id_at($1) AND id < ${db.quoted}.id_at($2) GROUP BY topic`,
        [found.from, found.to],
      );
      expect(
        await counts('topics', from, to),
        `${from.toISOString()} to ${to.toISOString()}`,
      ).toEqual(Object.fromEntries(log.map(({ topic, messages }) => [topic, messages])));
    }
  });

  it('W5 that end within the oldest hours or the oldest slices of 10 minutes are complete', async () => {
    const today = Math.floor(Date.now() / dayMs) * dayMs;
    const counted = new Date(today - dayMs + 15 * hourMs);
    // one message in each slice of the last 40 days
    await db.query(
      `INSERT INTO ${db.quoted}.report_counts (kind, step, slice, name, count)
       SELECT 'topic', step, slice, 'x', step / 600
         FROM unnest(ARRAY[600, 3600, 86400]) step,
              generate_series($1::timestamptz, $2::timestamptz - step * interval '1 s', step * interval '1 s') slice`,
      [new Date(today - 40 * dayMs), new Date(counted.getTime() - hourMs)],
    );
    await db.query(
      `UPDATE ${db.quoted}.report_progress
          SET counted_to = $1, hours_to = $1, days_to = date_bin('1 day', $1, 'epoch') WHERE what = 'messages'`,
      [new Date(counted.getTime() - hourMs)],
    );
    await db.query(
      `SELECT ${db.quoted}.move_report_progress('messages', $1, ${db.quoted}.id_at($1))`,
      [counted],
    );
    for (const oldest of [counted.getTime() - 32 * dayMs, counted.getTime() - 2 * dayMs])
      for (let end = oldest - 14 * hourMs; end <= oldest + 10 * hourMs; end += 70 * minuteMs)
        for (const begin of [oldest - 7 * dayMs, oldest - 15 * hourMs, end - hourMs]) {
          const found = await report('topics', new Date(begin), new Date(end));
          const [from, to] = [found.from.getTime(), found.to.getTime()];
          expect(
            (found.total as CountRow).messages,
            `${found.from.toISOString()} to ${found.to.toISOString()}`,
          ).toBe((to - from) / (10 * minuteMs));
        }
  });

  it('W5 whose days are too old are removed by retention', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.report_counts (kind, step, slice, name, count)
       SELECT 'topic', 86400, date_bin('1 day', now() - n * interval '1 day', 'epoch'), 'x', 1
         FROM unnest(ARRAY[399, 402, 403]) n`,
    );
    const prune = async () =>
      only(
        (await db.query<{ n: number }>(`SELECT ${db.quoted}.prune_reports('400 days', 1) AS n`))
          .rows,
      ).n;
    expect([await prune(), await prune(), await prune()]).toEqual([1, 1, 0]);
  });
});

describe('destinations', () => {
  it('W5 have their tries, rates and times to delivery, each attempt counted once', async () => {
    const [good, bad] = [await makeQueue(db), await makeQueue(db)];
    await good.enqueue(4);
    const claim = await good.claim();
    const [first = '', second = '', third = '', fourth = ''] = claim.ids;
    await settle(db, claim, [
      { id: first, outcome: 'delivered' },
      { id: second, outcome: 'delivered' },
      { id: third, outcome: 'retry', retryAfterMs: 0, errorCode: 'busy' },
      { id: fourth, outcome: 'release' },
    ]);
    await fillNow(db);
    await makeDead(bad, 2, 'no');
    await fillNow(db);
    await fillNow(db);
    const { rows, total } = await report('destinations');
    const rowOf = (name: string) => (rows as DestinationRow[]).find((row) => row.name === name);
    expect(rowOf(good.name)).toMatchObject({
      tries: 3,
      delivered: 2,
      failed: 1,
      dead: 0,
      deliveryRate: 1,
      successRate: 0.666666,
    });
    expect(rowOf(good.name)?.p99Ms).toBeGreaterThan(0);
    expect(rowOf(good.name)?.p99Ms).toBeLessThan(60_000);
    expect(rowOf(bad.name)).toEqual({
      name: bad.name,
      tries: 2,
      perSecond: expect.any(Number) as number,
      delivered: 0,
      failed: 2,
      dead: 2,
      deliveryRate: 0,
      successRate: 0,
      p50Ms: null,
      p95Ms: null,
      p99Ms: null,
    });
    expect(total).toMatchObject({ tries: 5, delivered: 2, failed: 3, dead: 2, deliveryRate: 0.5 });
  });

  it('W5 whose settle commits late are counted, and not twice', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(2);
    const client = await db.connect();
    const claim = await queue.claim({ limit: 1 });
    await client.query('BEGIN');
    await settle(db, claim, [{ id: claim.ids[0] ?? '' }], client);
    const other = await queue.claim({ limit: 1 });
    await settle(db, other, [{ id: other.ids[0] ?? '' }]);
    await fillNow(db);
    await client.query('COMMIT');
    await fillNow(db);
    await fillNow(db);
    const { rows } = await report('destinations');
    expect(rows).toMatchObject([{ name: queue.name, delivered: 2 }]);
  });

  /** Delivered attempts of one destination, at these times. */
  async function writeAttempts(times: readonly Date[]): Promise<string> {
    const queue = await makeQueue(db);
    const oldest = Math.min(...times.map((time) => time.getTime()));
    await db.query(
      `SELECT ${db.quoted}.make_partitions(2, (now() AT TIME ZONE 'UTC')::date - $1::int)`,
      [Math.ceil((Date.now() - oldest) / dayMs)],
    );
    await db.query(
      `INSERT INTO ${db.quoted}.attempts (message_id, ended_at, claim_no, tries, state, destination_id)
       SELECT overlay(${db.quoted}.id_at(t)::text PLACING substr(gen_random_uuid()::text, 20) FROM 20)::uuid, t, 1, 1,
              'dispatched', (SELECT d.id FROM ${db.quoted}.destinations d WHERE d.name = $2)
         FROM unnest($1::timestamptz[]) t`,
      [times, queue.name],
    );
    return queue.name;
  }
  const deliveredIn = async (days: number) =>
    ((await report('destinations', ago(days * dayMs))).rows as DestinationRow[]).map(
      ({ delivered }) => delivered,
    );

  it('W5 their attempts are counted a piece at a time, however many end in a minute', async () => {
    const from = ago(50_000).getTime();
    await writeAttempts(Array.from({ length: 1500 }, (_none, n) => new Date(from + n * 10)));
    expect(await fillNow(db, 100)).toBeGreaterThanOrEqual(15);
    expect(await deliveredIn(1)).toEqual([1500]);
  });

  it('W5 more attempts of the same moment than a piece has are counted once', async () => {
    const moment = ago(20 * minuteMs);
    await writeAttempts([...Array.from({ length: 30 }, () => moment), ago(10 * minuteMs)]);
    await fillNow(db, 10);
    await fillNow(db, 10);
    expect(await deliveredIn(1)).toEqual([31]);
  });

  it('W5 days without attempts are left behind in a few steps', async () => {
    await writeAttempts([ago(6 * dayMs), ago(3 * dayMs), ago(3 * dayMs), ago(hourMs)]);
    expect(await fillNow(db)).toBeLessThan(200);
    expect(await deliveredIn(7)).toEqual([4]);
    expect(await deliveredIn(1)).toEqual([1]);
  });

  it('W5 the buckets of the database are those of the percentiles', async () => {
    const { rows } = await db.query<{ ms: number; bucket: number }>(
      `SELECT ms, ${db.quoted}.delivery_bucket(ms * interval '1 ms') AS bucket
         FROM unnest(ARRAY[-5, 0, 1, 1.5, 3, 100, 4000, 86400000, 1e10]::float8[]) ms`,
    );
    for (const { ms, bucket } of rows)
      expect([ms, bucket]).toEqual([ms, Math.min(Math.floor(2 * Math.log2(Math.max(ms, 1))), 55)]);
  });
});

it('W5 a drain counts what is complete, with the rights of a relay', async () => {
  await writeMessages(db, { from: ago(5 * minuteMs), count: 10, topic: 'drained' });
  const made = makeRelay(db, { destinations: { drained: handler(() => {}) } });
  await made.relay.drain({ maxMs: 10_000, maxMessages: 100 });
  expect(made.of('trouble')).toEqual([]);
  expect(await counts('topics')).toEqual({ drained: 10 });
});
