// Retry delays: exponential with equal jitter, or an explicit list. The database computes them, here in bulk for many
// policies at once, and refuses policies that give no delay.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

type Policy = { base: number; max: number; tries: number };

/** One delay in milliseconds for each policy, in one statement. */
async function delays(policies: Policy[]): Promise<number[]> {
  const { rows } = await db.query<{ ms: number }>(
    `SELECT (extract(epoch FROM ${db.quoted}.retry_delay(p.base, p.max, NULL, p.tries)) * 1000)::float8 AS ms
       FROM unnest($1::bigint[], $2::bigint[], $3::int[]) WITH ORDINALITY p(base, max, tries, place) ORDER BY place`,
    [policies.map((p) => p.base), policies.map((p) => p.max), policies.map((p) => p.tries)],
  );
  return rows.map((row) => row.ms);
}

const policy = fc
  .record({
    base: fc.integer({ min: 0, max: 1_000_000_000 }),
    room: fc.integer({ min: 0, max: 2_000_000_000 }),
    tries: fc.integer({ min: 1, max: 2_147_483_647 }),
  })
  .map(({ base, room, tries }): Policy => ({ base, max: base + room, tries }));

describe('exponential', () => {
  it('M10 every delay is within the upper half of min(base * 2^(tries-1), max)', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(policy, { minLength: 50, maxLength: 200 }), async (policies) => {
        const got = await delays(policies);
        policies.forEach(({ base, max, tries }, n) => {
          const full = Math.min(base * 2 ** Math.min(tries - 1, 1000), max);
          const slack = 0.001 + full * 1e-9;
          expect(got[n]).toBeGreaterThanOrEqual(full / 2 - slack);
          expect(got[n]).toBeLessThanOrEqual(full + slack);
        });
      }),
      { numRuns: 20 },
    );
  });

  it('M10 the delay doubles with every try until the cap', async () => {
    const samples = 400;
    for (const [tries, full] of [1000, 2000, 4000, 8000, 10_000, 10_000].entries()) {
      const got = await delays(
        Array.from({ length: samples }, () => ({ base: 1000, max: 10_000, tries: tries + 1 })),
      );
      expect(Math.min(...got)).toBeGreaterThanOrEqual(full / 2);
      expect(Math.max(...got)).toBeLessThanOrEqual(full);
      // each sample misses an end of a tenth with probability 0.9: all of them, 0.9^400
      expect(Math.min(...got)).toBeLessThan(full * 0.55);
      expect(Math.max(...got)).toBeGreaterThan(full * 0.95);
    }
  });

  it('M10 the jitter is uniform over its range, drawn anew for every delivery', async () => {
    const samples = 4000;
    const got = await delays(
      Array.from({ length: samples }, () => ({ base: 1000, max: 1000, tries: 1 })),
    );
    expect(new Set(got).size).toBeGreaterThan(samples * 0.95);
    const buckets = [0, 0, 0, 0, 0];
    for (const ms of got) {
      const bucket = Math.min(Math.floor((ms - 500) / 100), 4);
      buckets[bucket] = (buckets[bucket] ?? 0) + 1;
    }
    // 800 expected in each, with a standard deviation of 25
    for (const count of buckets) expect(Math.abs(count - samples / 5)).toBeLessThan(200);
  });

  it('M10 a policy without a delay retries at once, and huge numbers do not overflow', async () => {
    expect(await delays([{ base: 0, max: 0, tries: 5 }])).toEqual([0]);
    const [huge = 0] = await delays([
      { base: 315_360_000_000, max: 315_360_000_000, tries: 2_147_483_647 },
    ]);
    expect(huge).toBeGreaterThanOrEqual(157_680_000_000);
    expect(huge).toBeLessThanOrEqual(315_360_000_000);
  });
});

describe('an explicit list', () => {
  it('W3 each retry waits for its own delay, exactly', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 7_200_000 }), { minLength: 1, maxLength: 20 }),
        async (list) => {
          const { rows } = await db.query<{ ms: number }>(
            `SELECT (extract(epoch FROM ${db.quoted}.retry_delay(0, 0, $1, n)) * 1000)::float8 AS ms
               FROM generate_series(1, $2) n ORDER BY n`,
            [list, list.length + 2],
          );
          const last = list.at(-1);
          expect(rows.map((row) => row.ms)).toEqual([...list, last, last]);
        },
      ),
      { numRuns: 30 },
    );
  });

  it('W3 n delays mean one first try and n retries, each after its delay, then a dead letter', async () => {
    const minutes = [1, 5, 15, 60, 120].map((minute) => minute * 60_000);
    const queue = await makeQueue(db, { retryDelaysMs: minutes, retryBaseMs: 0, retryMaxMs: 0 });
    const [id = ''] = await queue.enqueue(1);
    const waits: number[] = [];
    for (;;) {
      const claim = await queue.claimOne();
      await settle(db, claim, [{ id, claimNo: claim.row.claim_no, outcome: 'retry' }]);
      const [waiting] = await queue.waiting();
      if (waiting === undefined) break;
      const attempt = (await queue.attempts(id)).at(-1);
      waits.push(waiting.available_at.getTime() - (attempt?.ended_at.getTime() ?? 0));
      await queue.makeDue();
    }
    expect(waits).toEqual(minutes);
    expect(only(await queue.deadLetters())).toMatchObject({ tries: 6, reason: 'exhausted' });
  });

  it('M10 M6 a maximum of three attempts means three deliveries', async () => {
    const queue = await makeQueue(db, { maxAttempts: 3 });
    const [id = ''] = await queue.enqueue(1);
    let deliveries = 0;
    for (;;) {
      await queue.makeDue();
      const claim = await queue.claim();
      if (claim.ids.length === 0) break;
      deliveries += 1;
      await settle(db, claim, [{ id, outcome: 'retry', errorMessage: `failure ${deliveries}` }]);
    }
    expect(deliveries).toBe(3);
    expect(await queue.status(id)).toMatchObject({ status: 'dead', last_error: 'failure 3' });
  });
});

describe('a policy', () => {
  const tenYearsMs = 315_360_000_000;
  const define = (settings: string) =>
    db.query(`SELECT ${db.quoted}.define_destination('policy', ${settings})`);

  it.each([
    ['no attempt at all', 'p_max_attempts => 0'],
    ['a negative base', 'p_retry_base_ms => -1'],
    ['a maximum below its base', 'p_retry_base_ms => 2, p_retry_max_ms => 1'],
    ['a maximum beyond ten years', `p_retry_max_ms => ${tenYearsMs + 1}`],
    ['a list without a delay', "p_retry_delays_ms => '{}'"],
    ['a null delay', "p_retry_delays_ms => '{1,null}'"],
    ['a negative delay', "p_retry_delays_ms => '{1,-1}'"],
    ['a delay beyond ten years', `p_retry_delays_ms => '{1,${tenYearsMs + 1}}'`],
  ])('M10 with %s is refused, by the table too', async (_what, settings) => {
    await expect(define(settings)).rejects.toMatchObject({ code: '22023' });
    await define('p_max_attempts => 3');
    const columns = settings.replaceAll('p_', '').replaceAll('=>', '=');
    await expect(
      db.query(`UPDATE ${db.quoted}.destinations SET ${columns} WHERE name = 'policy'`),
    ).rejects.toMatchObject({ code: '23514' });
  });

  it.each([
    ['one attempt', 'p_max_attempts => 1'],
    ['no delay', 'p_retry_base_ms => 0, p_retry_max_ms => 0'],
    ['ten years', `p_retry_base_ms => ${tenYearsMs}, p_retry_max_ms => ${tenYearsMs}`],
    ['a list of both', `p_retry_delays_ms => '{0,${tenYearsMs}}'`],
  ])('M10 with %s is accepted', async (_what, settings) => {
    await expect(define(settings)).resolves.toMatchObject({ rowCount: 1 });
  });
});
