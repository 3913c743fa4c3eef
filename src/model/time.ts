// A time as ISO 8601 writes it, or none. `new Date` takes far more for one: "3 days" is the first of March 2001 to
// it, and the 30th of February the second of March; what was meant would silently become another time.

const pattern =
  /^((?:\d{4}|[+-]\d{6})-\d\d)-(\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?$/i;

export function timeOf(text: unknown): Date | null {
  const parts = typeof text === 'string' ? pattern.exec(text) : null;
  if (parts === null) return null;
  const [whole, month, day] = parts;
  // a day that the month does not have is counted on into the next one
  if (new Date(`${month}-${day}T00:00:00Z`).getUTCDate() !== Number(day)) return null;
  const date = new Date(whole);
  return Number.isNaN(date.getTime()) ? null : date;
}
