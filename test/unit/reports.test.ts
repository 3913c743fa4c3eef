// Parts of reports that need no database: percentiles of a histogram, the chosen period, and CSV.

import { describe, expect, it } from 'vitest';

import { csvOf } from '../../src/features/reports/csv.js';
import { bucketCounts, percentileMs } from '../../src/features/reports/percentiles.js';
import { periodOf } from '../../src/features/reports/report.js';
import type { Report } from '../../src/features/reports/report.js';

describe('percentiles', () => {
  /** A histogram as the database writes it. */
  const histogram = (counts: Record<number, number>): string =>
    Object.entries(counts)
      .reduce(
        (sum, [bucket, count]) => sum + BigInt(count) * 10n ** BigInt(12 * Number(bucket)),
        0n,
      )
      .toString();

  it('W5 the digits of a histogram are the counts of its buckets', () => {
    const counts = bucketCounts(histogram({ 0: 7, 13: 123_456_789_012, 55: 3 }));
    expect(counts).toHaveLength(56);
    expect([counts[0], counts[13], counts[55]]).toEqual([7, 123_456_789_012, 3]);
    expect(counts.filter((count) => count > 0)).toHaveLength(3);
  });

  it('W5 a percentile is off by a fifth at most, wherever in a bucket the times are', () => {
    for (let bucket = 0; bucket < 55; bucket += 1) {
      const found = percentileMs(bucketCounts(histogram({ [bucket]: 100 })), 0.95) ?? 0;
      const [shortest, longest] = [2 ** (bucket / 2), 2 ** ((bucket + 1) / 2)];
      expect(found / shortest - 1, `all of ${shortest} ms`).toBeLessThan(0.2);
      expect(1 - found / longest, `all of ${longest} ms`).toBeLessThan(0.2);
    }
  });

  it('W5 a percentile is in the bucket of the delivery with that rank', () => {
    const counts = bucketCounts(histogram({ 4: 50, 10: 45, 20: 4, 30: 1 }));
    expect([0.5, 0.95, 0.99, 1].map((share) => percentileMs(counts, share))).toEqual([
      4.76, 38, 1218, 38_968,
    ]);
  });

  it('W5 without deliveries there is no percentile, and the last bucket has no end', () => {
    expect(percentileMs(bucketCounts('0'), 0.5)).toBeNull();
    expect(percentileMs(bucketCounts(histogram({ 55: 9 })), 0.99)).toBe(Math.round(2 ** 27.5));
  });
});

describe('the period', () => {
  const now = new Date('2026-03-01T12:00:00Z');
  const day = (text: string) => new Date(`${text}T00:00:00Z`);

  it('W5 is the last day, a named period, or from a time to another or to now', () => {
    expect(periodOf({}, now)).toEqual({ from: new Date('2026-02-28T12:00:00Z'), to: now });
    expect(periodOf({ period: '1h' }, now).from).toEqual(new Date('2026-03-01T11:00:00Z'));
    expect(periodOf({ from: day('2026-02-01') }, now)).toEqual({
      from: day('2026-02-01'),
      to: now,
    });
    expect(periodOf({ from: day('2026-01-01'), to: day('2026-02-01') }, now).to).toEqual(
      day('2026-02-01'),
    );
  });

  it.each([
    [{ to: now }, /^to is 2026-03-01T12:00:00.000Z without from: give from too$/],
    [{ period: '1h', from: day('2026-01-01') }, /^period is "1h" beside from: give one of them$/],
    [{ from: now, to: now }, /^from is .*, which is not before to .*: give an earlier time$/],
    [
      { from: day('2025-01-01') },
      /^from is .*, more than 31 days before to .*: give at most 31 days$/,
    ],
  ] as const)('W5 %j is refused with the field, the value and the remedy', (chosen, message) => {
    expect(() => periodOf(chosen, now)).toThrow(message);
  });
});

describe('CSV', () => {
  const report = (names: (string | null)[]): Report => ({
    by: 'tenants',
    from: new Date(0),
    to: new Date(1),
    completeTo: null,
    rows: names.map((name, n) => ({ name, messages: n, perSecond: null })),
    hidden: 0,
    total: { messages: 6, perSecond: 0.5 },
  });

  it('W5 has a line for each row and the total, with names for none and for all others', () => {
    expect(csvOf(report(['acme', '', null]))).toBe(
      'name,messages,perSecond\r\nacme,0,\r\n(none),1,\r\n(others),2,\r\n(total),6,0.5\r\n',
    );
  });

  it('W5 a tenant whose name looks like another row is marked', () => {
    const names = csvOf(report(['(none)', "'(none)", '', '(total)']))
      .split('\r\n')
      .map((line) => line.split(',')[0]);
    expect(names).toEqual(['name', "'(none)", "''(none)", '(none)', "'(total)", '(total)', '']);
  });

  it.each([
    '=1+1',
    '+1',
    '-1',
    '@SUM(A1)',
    '\tx',
    '\r=1',
    '＝1',
    '\uFEFF=1',
    '\u00a0=1',
    '\n=1',
    ' @x',
  ])('W5 a name that a spreadsheet would calculate (%j) is marked as text', (name) => {
    const [, line] = csvOf(report([name])).split(/\r\n(?!=)/);
    expect(line?.replace(/^"/, '').startsWith(`'${name[0] ?? ''}`)).toBe(true);
  });

  it('W5 a name that holds another separator stays in its cell', () => {
    expect(csvOf(report(['x;=1', 'a\tb']))).toContain('\r\n"x;=1",0,\r\n"a\tb",1,\r\n');
  });

  it('W5 quotes, commas and line breaks stay in their cell', () => {
    expect(csvOf(report(['a"b,c\nd']))).toContain('\r\n"a""b,c\nd",0,\r\n');
  });
});
