// Formats numbers, sizes and durations for people. Whole numbers that arrive as text stay text: they may exceed what a
// number holds exactly.

const missing = '–';

export function count(value: number | string | null | undefined): string {
  if (value === null || value === undefined) return missing;
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

/** A count in the text of an alert: what it counts, or a bracket, follows it. Other numbers are names. */
const countInText =
  /(?<![\w.-])\d{4,}(?=\)| (?:delivery|deliveries|messages?|cursors?|others?|seconds|days)\b)/g;

/** Text of an alert or an alarm: the database writes its numbers without separators. */
export function withSeparators(text: string): string {
  return text.replace(countInText, count);
}

/** A count that stopped at its bound is shown as "at least". */
export function countUpTo(value: number | null | undefined, bound: number): string {
  return value !== null && value !== undefined && value >= bound
    ? `${count(bound)}+`
    : count(value);
}

/** Counts of pending and dead deliveries are estimates from here on. */
export const estimatedFrom = 10_000;

/** A value at or above the bound is an estimate. */
export function about(value: number | null | undefined, bound = estimatedFrom): string {
  if (value === null || value === undefined || value < bound) return count(value);
  return `≈ ${count(Number(value.toPrecision(2)))}`;
}

export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined) return missing;
  if (value >= 100) return count(Math.round(value));
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export function share(value: number | null | undefined): string {
  if (value === null || value === undefined) return missing;
  if (value === 0 || value === 1) return `${value * 100} %`;
  // almost all must not look like all, and almost none not like none
  const percent = Math.min(99.999, Math.max(0.001, value * 100));
  return `${percent.toFixed(percent > 99.9 || percent < 0.1 ? 3 : 1)} %`;
}

export function milliseconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return missing;
  if (value < 1000)
    return `${value < 10 && !Number.isInteger(value) ? value.toFixed(1) : Math.round(value)} ms`;
  return seconds(value / 1000);
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return missing;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min`;
  if (value < 172_800) return `${Math.floor(value / 3600)} h`;
  return `${Math.floor(value / 86_400)} d`;
}

/** Formats an estimated duration. */
export function roughly(value: number): string {
  return value < 1 ? 'a moment' : `about ${seconds(value)}`;
}

export function bytes(text: string | number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = Number(text);
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit] ?? ''}`;
}

/** `2 messages`, `1 message` */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
