// Histogram of durations in milliseconds, with bounds that grow by factors of two to three.

export type Histogram = {
  count: number;
  p50Ms: number | null;
  p99Ms: number | null;
  /** `maxMs` is inclusive; null for the last bucket, which has no bound. */
  buckets: { maxMs: number | null; count: number }[];
};

const bounds = [5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 600_000];

/** Nulls are left out. */
export function histogramOf(values: readonly (number | null)[]): Histogram {
  const sorted = values.filter((value) => value !== null).toSorted((a, b) => a - b);
  const upTo = (bound: number): number => sorted.filter((value) => value <= bound).length;
  const totals = [...bounds.map(upTo), sorted.length];
  const at = (share: number): number | null =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? null;
  return {
    count: sorted.length,
    p50Ms: at(0.5),
    p99Ms: at(0.99),
    buckets: totals.map((total, index) => ({
      maxMs: bounds[index] ?? null,
      count: total - (totals[index - 1] ?? 0),
    })),
  };
}
