// Histograms of durations: every value is in one bucket.

import { expect, it } from 'vitest';

import { histogramOf } from '../../src/listing/histogram.js';

it('W5 a histogram counts each duration once, with the bound included, and leaves out nulls', () => {
  const { count, p50Ms, p99Ms, buckets } = histogramOf([null, 0, 5, 5.1, 1_000_000, 20]);
  expect(count).toBe(5);
  expect([p50Ms, p99Ms]).toEqual([5.1, 1_000_000]);
  expect(buckets.filter((bucket) => bucket.count > 0)).toEqual([
    { maxMs: 5, count: 2 },
    { maxMs: 10, count: 1 },
    { maxMs: 20, count: 1 },
    { maxMs: null, count: 1 },
  ]);
  expect(histogramOf([])).toMatchObject({ count: 0, p50Ms: null, p99Ms: null });
});
