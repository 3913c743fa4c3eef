// Recent statistics: relays add their counters, samples are taken once, the overview combines both, and alerts fire
// above their thresholds and not below.

import { describe, expect, it } from 'vitest';

import { readAlerts } from '../../src/features/alerts/database.js';
import { chartRange } from '../../src/listing/chart-bounds.js';
import { readDestinationStatistics } from '../../src/listing/destination-statistics.js';
import { readDestinations, readGauges, readHealth } from '../../src/listing/reports.js';
import { readOverview } from '../../src/listing/statistics.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { rewriteAttempts } from '../support/record.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { expire, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

async function firing(thresholds = {}): Promise<string[]> {
  const alerts = await readAlerts(openDatabase(db), thresholds);
  return alerts.filter((alert) => alert.firing).map(({ alert }) => alert);
}

async function add(
  destinationId: number,
  delivered: number,
  retried: number,
  died: number,
): Promise<void> {
  await db.query(`SELECT ${db.quoted}.add_statistics($1, $2, $3, $4)`, [
    [destinationId],
    [delivered],
    [retried],
    [died],
  ]);
}

async function forget(): Promise<void> {
  await db.query(`DELETE FROM ${db.quoted}.statistics`);
  await db.query(`DELETE FROM ${db.quoted}.samples`);
}

describe('statistics', () => {
  it('P14 the work of several relays in one slice is summed', async () => {
    await forget();
    await Promise.all(Array.from({ length: 8 }, () => add(1, 10, 2, 1)));
    const { rows } = await db.query<{ delivered: number; retried: number; died: number }>(
      `SELECT sum(delivered)::int AS delivered, sum(retried)::int AS retried, sum(died)::int AS died FROM ${db.quoted}.statistics`,
    );
    expect(rows).toEqual([{ delivered: 80, retried: 16, died: 8 }]);
  });

  it('P14 a slice is sampled once, whichever process asks, and counts what was enqueued during it', async () => {
    await forget();
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(7);
    // once their slice has ended
    const { rows: times } = await db.query<{ at: Date }>(
      `SELECT ${db.quoted}.id_time($1) + interval '10 seconds' AS at`,
      [ids.at(-1)],
    );
    const take = async () => {
      const { rows: answers } = await db.query<{ taken: boolean }>(
        `SELECT ${db.quoted}.take_sample($1) AS taken`,
        [only(times).at],
      );
      return only(answers).taken;
    };
    const taken = await Promise.all(Array.from({ length: 5 }, take));
    expect(taken.filter(Boolean)).toHaveLength(1);
    expect(await take()).toBe(false);
    const { rows } = await db.query<{ enqueued: string; waiting: string }>(
      `SELECT enqueued, waiting FROM ${db.quoted}.samples`,
    );
    expect(Number(only(rows).enqueued)).toBeGreaterThanOrEqual(ids.length);
    expect(Number(only(rows).waiting)).toBeGreaterThanOrEqual(ids.length);
  });

  it('W7 the overview has rates and sums for the requested time', async () => {
    await forget();
    await add(1, 600, 60, 6);
    await db.query(
      `UPDATE ${db.quoted}.statistics SET slice = date_bin('10 seconds', clock_timestamp() - interval '5 minutes', 'epoch')`,
    );
    const { points, deliveredToday } = await readOverview(openDatabase(db), 60);
    expect(points).toHaveLength(60);
    const busy = only(points.filter(({ out }) => out > 0));
    expect(busy).toMatchObject({ out: 10, failed: 1.1, died: 0.1 });
    expect([0, 600]).toContain(deliveredToday);
    const earlier = await readOverview(openDatabase(db), 10, 600);
    expect(earlier.points.filter(({ out }) => out > 0)).toMatchObject([{ out: 60 }]);
  });

  describe('W7 the points of the overview', () => {
    const ranges = [10, 15, 60, 360, 1440, 10_080];

    /** Slices with 386 deliveries and 200 messages each: the last complete one, and this many before it. */
    async function busy(slices: number): Promise<void> {
      await forget();
      await db.query(
        `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
         SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') - n * interval '10 seconds', 1, 386, 0, 0 FROM generate_series(0, $1::int) n`,
        [slices],
      );
      await db.query(
        `INSERT INTO ${db.quoted}.samples (slice, enqueued, waiting, retrying, dead)
         SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') - n * interval '10 seconds', 200, 7, 0, 0 FROM generate_series(0, $1::int) n`,
        [slices],
      );
    }

    it.each(ranges)('end with the last complete slice, over %i minutes', async (minutes) => {
      await busy(30);
      const { points, now } = await readOverview(openDatabase(db), minutes);
      const last = points.at(-1);
      expect(now.getTime() - (last?.at.getTime() ?? 0)).toBeLessThan(20_000);
      expect(last).toMatchObject({ out: 38.6, in: 20, waiting: 7 });
      const all = points.map(({ at }) => at.getTime());
      expect(all).toEqual(all.toSorted((a, b) => a - b));
      expect(now.getTime() - (all[0] ?? 0)).toBeLessThanOrEqual(minutes * 60_000 + 10_000);
    });

    it.each(ranges)('have the rates of the time with a relay, over %i minutes', async (minutes) => {
      await busy(3);
      const { points, since } = await readOverview(openDatabase(db), minutes);
      const rates = points.filter(({ out }) => out > 0).map(({ out }) => out);
      expect(new Set(rates)).toEqual(new Set([38.6]));
      // the sample of the time before the first relay says nothing about what comes in
      expect(new Set(points.flatMap((point) => point.in ?? []))).toEqual(new Set([20]));
      expect(since).not.toBeNull();
    });

    it('of a time that has not ended are those until now, in intervals of that length', async () => {
      await busy(400);
      const from = new Date(Date.now() - 60_000);
      const of = async (to: number) => {
        const range = { from, to: new Date(Date.now() + to) };
        const { points, deliveryRate } = await readOverview(openDatabase(db), range);
        const first = points[0]?.at.getTime() ?? 0;
        expect(first).toBeGreaterThan(from.getTime() - 10_000);
        expect(points.length).toBeGreaterThan(4);
        return deliveryRate;
      };
      expect(await of(86_400_000)).toEqual(await of(0));
      expect(await of(30 * 86_400_000)).toEqual(await of(0));
    });

    it('are those between two moments, in slices of their age', async () => {
      await busy(400);
      const end = Math.floor(Date.now() / 10_000) * 10_000 - 20 * 60_000;
      const ten = { from: new Date(end - 600_000), to: new Date(end) };
      const { points, successRate } = await readOverview(openDatabase(db), ten);
      expect(points).toHaveLength(60);
      expect(points.map(({ at }) => at.getTime())).toEqual(
        Array.from({ length: 60 }, (_, n) => end - 600_000 + (n + 1) * 10_000),
      );
      expect(points.at(-1)).toMatchObject({ out: 38.6, in: 20 });
      expect(successRate).toBe(1);
      // older than an hour: minutes
      const old = { from: new Date(end - 3_600_000), to: new Date(end - 3_600_000 + 90_000) };
      const minutes = (await readOverview(openDatabase(db), old)).points.map(({ at }) =>
        at.getTime(),
      );
      expect(minutes.every((at) => at % 60_000 === 0)).toBe(true);
      expect(minutes.length).toBeLessThanOrEqual(3);
      expect(minutes[0]).toBeLessThanOrEqual(old.from.getTime() + 60_000);
      expect(minutes.at(-1)).toBeGreaterThanOrEqual(old.to.getTime());
    });

    it('of a time that has not ended are those until now', async () => {
      await busy(30);
      const now = Date.now();
      const { points } = await readOverview(openDatabase(db), {
        from: new Date(now - 300_000),
        to: new Date(now + 300_000),
      });
      const last = points.at(-1)?.at.getTime() ?? 0;
      expect(last).toBeLessThanOrEqual(Date.now());
      expect(last).toBeGreaterThan(now - 20_000);
    });

    it.each([
      [undefined, 0, 'from is missing: give from and to together'],
      [0, undefined, 'to is missing: give from and to together'],
      [-60, -60, 'give a time at least a minute after from'],
      [-86_400 * 32, 0, 'give a time of the last 31 days'],
      [3600, 7200, 'give a time of the last 31 days'],
    ])('of an invalid time are refused: %s to %s', (from, to, words) => {
      const at = (seconds: number | undefined) =>
        seconds === undefined ? undefined : new Date(Date.now() + seconds * 1000);
      expect(() => chartRange(at(from), at(to))).toThrow(words);
    });

    it('say nothing about what came in before the first relay', async () => {
      await forget();
      await db.query(`SELECT ${db.quoted}.take_sample()`);
      const { points } = await readOverview(openDatabase(db), 10);
      expect(points.map((point) => point.in).filter((each) => each !== null)).toEqual([]);
      expect(points.some(({ waiting }) => waiting !== null)).toBe(true);
    });
  });

  it.each([60, 1440, 10_080])(
    'W7 the last interval of a destination is as long as the others, over %i minutes',
    async (minutes) => {
      await forget();
      const queue = await makeQueue(db);
      await db.query(
        `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
         SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') - n * interval '10 seconds', $1, 10, 0, 0
           FROM generate_series(0, $2::int * 6) n`,
        [queue.id, minutes],
      );
      const { points, stepSeconds } = await readDestinationStatistics(
        openDatabase(db),
        queue.name,
        minutes,
      );
      const sliceSeconds = minutes > 1440 ? 600 : minutes > 60 ? 60 : 10;
      const ageMs = Date.now() - (points.at(-1)?.at.getTime() ?? 0);
      expect(ageMs).toBeGreaterThanOrEqual(0);
      expect(ageMs).toBeLessThan((sliceSeconds + 10) * 1000);
      const ends = points.map(({ at }) => at.getTime());
      expect(ends.filter((at) => at % (sliceSeconds * 1000) > 0)).toEqual([]);
      // the first one begins before the oldest slice of this test
      expect(points.slice(1).map(({ delivered }) => delivered)).toEqual(
        Array.from({ length: points.length - 1 }, () => stepSeconds),
      );
    },
  );

  it('W10 W7 N15 the delivery rate counts finished deliveries with their retries, the success rate single tries', async () => {
    await forget();
    const [queue, other] = [await makeQueue(db), await makeQueue(db)];
    // 1,000 deliveries ended, of which one died; they took 1,250 tries
    await add(queue.id, 999, 250, 1);
    await add(other.id, 1, 0, 1);
    const rates = (client: { query: typeof db.query }, ...args: string[]) =>
      client
        .query<{ delivered: number; delivery: number | null; success: number | null }>(
          `SELECT delivered::int, retried::int, died::int, delivery_rate::float8 AS delivery, success_rate::float8 AS success
             FROM ${db.quoted}.delivery_rates(${args.map((_, n) => `$${n + 1}`).join(', ')})`,
          args,
        )
        .then(({ rows }) => only(rows));
    await as(db, 'test_auditor', async (client) => {
      const expected = { delivered: 999, retried: 250, died: 1, delivery: 0.999, success: 0.7992 };
      expect(await rates(client, '1 hour', queue.name)).toEqual(expected);
      expect(await rates(client)).toMatchObject({ delivered: 1000, delivery: 0.998003 });
      await expect(rates(client, '1 hour', 'nowhere')).rejects.toThrow(/nowhere/);
      await expect(rates(client, '-1 hour')).rejects.toThrow(/p_window/);
    });
    await db.query(`UPDATE ${db.quoted}.statistics SET slice = slice - interval '2 hours'`);
    expect(await rates(db, '1 hour')).toMatchObject({
      delivered: 0,
      delivery: null,
      success: null,
    });
    expect(await rates(db, '3 hours')).toMatchObject({ delivered: 1000 });
  });

  it('W10 a delivery that dies with its relay counts as dead', async () => {
    await forget();
    const [fragile, lasting] = [await makeQueue(db, { maxAttempts: 1 }), await makeQueue(db)];
    for (const queue of [fragile, lasting]) {
      await queue.enqueue(3);
      await expire(db, await queue.claim({ limit: 2 }));
      await expire(db, await queue.claim({ limit: 1 }));
    }
    await as(db, 'test_relay', (client) => client.query(`SELECT ${db.quoted}.reap()`));
    expect(await fragile.deadLetters()).toHaveLength(3);
    const { rows } = await db.query(
      `SELECT destination_id, delivered::int, retried::int, died::int FROM ${db.quoted}.statistics`,
    );
    expect(rows).toEqual([{ destination_id: fragile.id, delivered: 0, retried: 0, died: 3 }]);
    // the tests of alerts count everything
    for (const table of ['deliveries', 'dead_letters'])
      await db.query(`DELETE FROM ${db.quoted}.${table}`);
  });

  it('W10 health, the overview, destinations and gauges have both rates', async () => {
    await forget();
    const queue = await makeQueue(db);
    const database = openDatabase(db);
    const health = async () =>
      new Map((await readHealth(database)).map(({ metric, value }) => [metric, value]));
    const of = <T extends { name: string }>(list: T[]) =>
      only(list.filter(({ name }) => name === queue.name));
    const none = { deliveryRate: null, successRate: null };
    expect((await health()).get('delivery_rate')).toBeNull();
    expect(await readOverview(database, 60)).toMatchObject(none);
    expect(of(await readDestinations(database))).toMatchObject(none);
    expect(of((await readGauges(database)).destinations)).toMatchObject(none);

    await add(queue.id, 90, 20, 10);
    await db.query(`UPDATE ${db.quoted}.statistics SET slice = slice - interval '10 seconds'`);
    const both = { deliveryRate: 0.9, successRate: 0.75 };
    expect((await health()).get('delivery_rate')).toBe(0.9);
    expect((await health()).get('success_rate')).toBe(0.75);
    expect(await readOverview(database, 60)).toMatchObject(both);
    expect(of(await readDestinations(database))).toMatchObject(both);
    expect(of((await readGauges(database)).destinations)).toMatchObject(both);
  });

  it('P14 slices older than a day are merged without a loss', async () => {
    await forget();
    await db.query(
      `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
       SELECT date_bin('10 minutes', now() - interval '2 days', 'epoch') + n * interval '10 seconds', d, n, 1, 2
         FROM generate_series(1, 240) n, generate_series(1, 2) d
       UNION ALL
       SELECT date_bin('10 seconds', now(), 'epoch') - n * interval '10 seconds', 1, 5, 0, 0 FROM generate_series(1, 30) n`,
    );
    const sums = async () =>
      only(
        (
          await db.query<Record<string, number>>(
            `SELECT sum(delivered)::int AS delivered, sum(retried)::int AS retried, sum(died)::int AS died,
                    (count(*) FILTER (WHERE slice < now() - interval '1 day'))::int AS old,
                    (count(*) FILTER (WHERE slice > now() - interval '1 day'))::int AS young
               FROM ${db.quoted}.statistics`,
          )
        ).rows,
      );
    const { old, ...before } = await sums();
    expect(old).toBe(480);
    for (const _ of [1, 2]) {
      await db.query(`SELECT ${db.quoted}.prune_statistics()`);
      expect(await sums()).toEqual({ ...before, old: 10 });
    }
    expect(before).toMatchObject({ young: 30, retried: 480 });
  });

  describe('P14 slices that are pruned while a sample is taken', () => {
    /** Slices of a day ago that both of them merge, and the end of one after which a sample does. */
    async function begin(): Promise<string> {
      await forget();
      await db.query(
        `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
         SELECT date_bin('10 minutes', now() - interval '36 hours', 'epoch') + n * interval '10 seconds', 1, n, 1, 2 FROM generate_series(1, 59) n`,
      );
      return `SELECT ${db.quoted}.take_sample(date_bin('10 minutes', now(), 'epoch')) AS taken`;
    }
    const found = async () =>
      (
        await db.query(
          `SELECT count(*)::int AS slices, sum(delivered)::int AS delivered, sum(retried)::int AS retried FROM ${db.quoted}.statistics`,
        )
      ).rows;
    const together = [{ slices: 1, delivered: 1770, retried: 59 }];
    const prune = `SELECT ${db.quoted}.prune_statistics()`;

    it('are left to the pruning session: the sample does not wait', async () => {
      const sample = await begin();
      const [pruning, sampling] = [await db.connect(), await db.connect()];
      await pruning.query('BEGIN');
      await pruning.query(prune);
      await sampling.query(`SET lock_timeout = '2s'`);
      expect((await sampling.query(sample)).rows).toEqual([{ taken: true }]);
      await pruning.query('COMMIT');
      expect(await found()).toEqual(together);
    });

    it('are awaited, and merged once', async () => {
      const sample = await begin();
      const [pruning, sampling] = [await db.connect(), await db.connect()];
      await sampling.query('BEGIN');
      expect((await sampling.query(sample)).rows).toEqual([{ taken: true }]);
      const backend = await backendId(pruning);
      const pruned = pruning.query(prune);
      await waitUntilBlocked(db, backend);
      // the blocked session holds no slice that the other one could want
      await sampling.query(`SELECT FROM ${db.quoted}.statistics FOR UPDATE NOWAIT`);
      await sampling.query('COMMIT');
      await pruned;
      expect(await found()).toEqual(together);
    });
  });

  it('P14 samples older than a day are merged: rates stay, and the largest number of pending deliveries', async () => {
    await forget();
    await db.query(
      `INSERT INTO ${db.quoted}.samples (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
       SELECT date_bin('1 hour', now() - interval '2 days', 'epoch') + n * interval '10 seconds', 5, CASE n WHEN 100 THEN 900 ELSE 4 END, 3, 2, 1.5, 40, 20, CASE n WHEN 7 THEN 800 ELSE 300 END
         FROM generate_series(0, 359) n WHERE n % 2 = 0
       UNION ALL
       SELECT date_bin('10 seconds', now() - interval '1 hour', 'epoch') + n * interval '10 seconds', 70, 1, 1, 1, 1, 1, 1, 1 FROM generate_series(1, 30) n`,
    );
    const before = await readOverview(openDatabase(db), 4 * 1440);
    for (const _ of [1, 2]) {
      await db.query(`SELECT ${db.quoted}.prune_statistics()`);
      const { rows } = await db.query<Record<string, number>>(
        `SELECT (count(*) FILTER (WHERE slice < now() - interval '1 day'))::int AS old, (count(*) FILTER (WHERE slice > now() - interval '1 day'))::int AS young,
                max(waiting)::int AS waiting FROM ${db.quoted}.samples`,
      );
      expect(only(rows)).toEqual({ old: 6, young: 30, waiting: 900 });
      const after = await readOverview(openDatabase(db), 4 * 1440);
      expect(after.points).toEqual(before.points);
    }
    const rates = before.points.flatMap((point) => point.in ?? []);
    expect(Math.min(...rates)).toBe(0.5);
  });

  it('P14 a sample that ends ten minutes merges what is old enough', async () => {
    await forget();
    await db.query(
      `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
       SELECT date_bin('1 minute', now() - interval '2 hours', 'epoch') + n * interval '10 seconds', 1, 1, 0, 0 FROM generate_series(0, 59) n`,
    );
    const left = async (at: string) => {
      await db.query(`SELECT ${db.quoted}.take_sample($1)`, [at]);
      const { rows } = await db.query<{ slices: number; delivered: number }>(
        `SELECT count(*)::int AS slices, sum(delivered)::int AS delivered FROM ${db.quoted}.statistics`,
      );
      return only(rows);
    };
    expect(await left('2026-01-01T00:00:30Z')).toEqual({ slices: 60, delivered: 60 });
    expect(await left('2026-01-01T00:10:00Z')).toEqual({ slices: 10, delivered: 60 });
  });

  it('P14 old slices are forgotten', async () => {
    await forget();
    await add(1, 1, 0, 0);
    await add(2, 1, 0, 0);
    await db.query(
      `UPDATE ${db.quoted}.statistics SET slice = slice - interval '32 days' WHERE destination_id = 1`,
    );
    const { rows } = await db.query<{ count: string }>(
      `SELECT ${db.quoted}.prune_statistics() AS count`,
    );
    expect(only(rows).count).toBe('1');
  });
});

describe('alerts', () => {
  it('N14 P14 do not fire on a healthy outbox', async () => {
    await forget();
    expect(await firing()).toEqual([]);
  });

  it('N14 fire for waiting and retrying, above their thresholds and not at them', async () => {
    const queue = await makeQueue(db);
    const { rows } = await db.query<{ value: string }>(
      `SELECT value FROM ${db.quoted}.health WHERE metric = 'waiting'`,
    );
    await queue.enqueue(1000 - Number(only(rows).value));
    expect(await firing()).not.toContain('waiting');
    await queue.enqueue(1);
    expect(await firing()).toContain('waiting');
    expect(await firing({ waiting: null })).not.toContain('waiting');
    const claim = await queue.claim({ limit: 101 });
    const endings = claim.ids.map((id) => ({
      id,
      outcome: 'retry' as const,
      retryAfterMs: 60_000,
    }));
    await settle(db, claim, endings.slice(1));
    expect(await firing()).not.toContain('retrying');
    await settle(db, claim, endings.slice(0, 1));
    expect(await firing()).toContain('retrying');
  });

  it('N14 fire for the average time to delivery', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(3);
    await settleDelivered(db, await queue.claim());
    expect(await firing()).not.toContain('average_delivery_seconds');
    await rewriteAttempts(
      db,
      `UPDATE ${db.quoted}.attempts SET ended_at = ended_at + interval '6 seconds' WHERE state = 'dispatched'`,
    );
    expect(await firing()).toContain('average_delivery_seconds');
  });

  it('P14 fire for deliveries that have been due for long, that die, or whose lease is never freed', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(12);
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      claim.ids.slice(0, 11).map((id) => ({ id, outcome: 'reject' as const })),
    );
    expect(await firing()).toContain('dead_growth');
    await expire(db, claim);
    expect(await firing()).not.toContain('stuck_dispatching');
    await db.query(
      `UPDATE ${db.quoted}.leases SET expires_at = clock_timestamp() - interval '61 seconds' WHERE id = $1`,
      [claim.leaseId],
    );
    expect(await firing()).toContain('stuck_dispatching');
    const late = await queue.enqueueOne();
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET available_at = available_at - interval '301 seconds' WHERE message_id = $1`,
      [late],
    );
    expect(await firing()).toContain('oldest_waiting_seconds');
  });

  it('P14 W8 fire for the share that is retried and the share that dies, given enough deliveries', async () => {
    await forget();
    await add(1, 4, 6, 0);
    expect(await firing()).not.toContain('retry_share');
    await add(1, 4, 6, 1);
    expect(await firing()).toContain('retry_share');
    expect(await firing()).not.toContain('dead_share');
    await add(1, 40, 0, 1);
    expect(await firing()).toContain('dead_share');
    expect(await firing({ retry_share: 0.9 })).not.toContain('retry_share');
  });

  it('P14 a threshold for an unknown alert is refused', async () => {
    await expect(firing({ wating: 1 })).rejects.toThrow('"wating" is not an alert: use waiting,');
  });
});
