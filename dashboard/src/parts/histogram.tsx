// Histogram of durations: a bar for each bucket, with the median and the 99th percentile.

import type { Histogram as Values } from '../../../src/listing/histogram.js';
import { count, milliseconds, plural } from '../shown.js';

export function Histogram({
  title,
  of: { count: total, p50Ms, p99Ms, buckets },
}: {
  title: string;
  of: Values;
}) {
  const filled = buckets.map((bucket) => bucket.count > 0);
  // without the empty buckets at both ends
  const shown = buckets.slice(filled.indexOf(true), filled.lastIndexOf(true) + 1);
  const most = Math.max(1, ...shown.map((bucket) => bucket.count));
  const before = buckets[filled.indexOf(true) - 1]?.maxMs ?? 0;
  return (
    <section class="panel histogram" aria-label={title}>
      <header>
        <h2>{title}</h2>
        <span class="muted">{total > 0 && `of ${plural(total, 'try', 'tries')}`}</span>
      </header>
      {total === 0 ? (
        <p class="empty">No data yet</p>
      ) : (
        <>
          <p>
            <span class="muted">p50</span> {milliseconds(p50Ms)} <span class="muted">p99</span>{' '}
            {milliseconds(p99Ms)}
          </p>
          <ol>
            {shown.map((bucket, index) => (
              <li key={bucket.maxMs}>
                <span class="muted">
                  {bucket.maxMs === null
                    ? `more than ${milliseconds(shown[index - 1]?.maxMs ?? before)}`
                    : `up to ${milliseconds(bucket.maxMs)}`}
                </span>
                <meter min={0} max={most} value={bucket.count} aria-hidden="true" />
                <span class="number">{count(bucket.count)}</span>
              </li>
            ))}
          </ol>
        </>
      )}
    </section>
  );
}
