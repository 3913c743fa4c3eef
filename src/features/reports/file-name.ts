// File name of a downloaded report: what it counts, and the period, so that the file alone says what it is about.

/** Such as `waybill-topics-20261118T190000Z-20261118T200000Z.csv`. */
export function fileNameOf(
  { by, from, to }: { by: string; from: Date | string; to: Date | string },
  format: 'csv' | 'json',
): string {
  const [first, last] = [from, to].map((at) =>
    new Date(at).toISOString().replace(/\.\d+/, '').replaceAll(/[-:]/g, ''),
  );
  return `waybill-${by}-${first}-${last}.${format}`;
}
