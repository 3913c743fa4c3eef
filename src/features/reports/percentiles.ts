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

/** The time that stands for all times of a bucket: the geometric middle. */
const middleOf = (bucket: number): number =>
  // the last bucket has no end, so its beginning stands for it
  2 ** ((bucket === buckets - 1 ? bucket : bucket + 0.5) / 2);

/**
 * The time that this share of the deliveries does not exceed, in milliseconds; null without deliveries. It is off by at
 * most a fifth plus 1.2 ms. Times below 1.4 ms count as 1.2 ms, times of two days and more as two days.
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
  const ms = middleOf(bucket);
  // more digits for short times, so that rounding does not add to the error
  return ms < 10 ? Math.round(ms * 100) / 100 : Math.round(ms);
}
