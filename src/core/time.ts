// Parses an ISO 8601 time with a year of four digits, as PostgreSQL reads it; null for anything else. `new Date` accepts
// far more: it reads "3 days" as the first of March 2001, and the 30th of February as the second of March.

const pattern = /^(\d{4}-\d\d)-(\d\d)(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?$/i;

export function timeOf(text: unknown): Date | null {
  const parts = typeof text === 'string' ? pattern.exec(text) : null;
  if (parts === null) return null;
  const [whole, month, day] = parts;
  // `new Date` moves a day that the month does not have into the next month
  if (new Date(`${month}-${day}T00:00:00Z`).getUTCDate() !== Number(day)) return null;
  const date = new Date(whole);
  return Number.isNaN(date.getTime()) ? null : date;
}
