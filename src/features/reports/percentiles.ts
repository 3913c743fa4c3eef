// Percentiles of a histogram of the database: one number whose digits are the counts of the buckets. Must match
// `delivery_bucket` in sql/functions/reports/fill_reports.sql.

const digits = 12;
const buckets = 56;

/** The counts of the buckets, from the shortest times on. */
export function bucketCounts(histogram: string): number[] {
  const padded = histogram.padStart(digits * buckets, '0');
  return Array.from({ length: buckets }, (_none, bucket) => {
    const end = padded.length - digits * bucket;
    return Number(padded.slice(end - digits, end));
  });
}

/** Where a bucket begins, in milliseconds. */
const beginOf = (bucket: number): number => (bucket === 0 ? 0 : 2 ** (bucket / 2));

/**
 * The time below which this share of the deliveries is, in milliseconds; null without deliveries. Within a bucket, times
 * are taken as evenly spread, so the result is off by a fifth at most. Times of two days and more count as two days.
 */
export function percentileMs(counts: readonly number[], share: number): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let left = share * total;
  let bucket = 0;
  for (const [place, count] of counts.entries()) {
    if (count === 0) continue;
    bucket = place;
    if (left <= count) break;
    left -= count;
  }
  const begin = beginOf(bucket);
  const end = bucket === buckets - 1 ? begin : beginOf(bucket + 1);
  const ms = begin + (end - begin) * Math.min(left / (counts[bucket] ?? 1), 1);
  return ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms);
}
