// Percentiles of the last seconds in bounded memory: a histogram for each second, with buckets that grow by one percent.

const growth = Math.log(1.01);
const buckets = 1800;
const sliceMs = 1000;

/** @param {number} windowMs */
export function openLatencies(windowMs) {
  const slices = Array.from({ length: Math.ceil(windowMs / sliceMs) }, () => ({
    slot: -1,
    counts: new Uint32Array(buckets),
  }));
  const slotNow = () => Math.floor(performance.now() / sliceMs);
  return {
    add(ms) {
      const slot = slotNow();
      const slice = slices[slot % slices.length];
      if (slice.slot !== slot) {
        slice.slot = slot;
        slice.counts.fill(0);
      }
      const bucket = Math.floor(Math.log1p(Math.max(ms, 0)) / growth);
      slice.counts[Math.min(bucket, buckets - 1)] += 1;
    },
    percentile(percent) {
      const oldest = slotNow() - slices.length;
      const recent = slices.filter(({ slot }) => slot > oldest);
      const total = recent.reduce((sum, { counts }) => sum + counts.reduce((a, b) => a + b, 0), 0);
      let left = (total * percent) / 100;
      for (let bucket = 0; bucket < buckets; bucket += 1) {
        left -= recent.reduce((sum, { counts }) => sum + counts[bucket], 0);
        if (left <= 0) return total === 0 ? 0 : Math.expm1(bucket * growth);
      }
      return 0;
    },
  };
}
