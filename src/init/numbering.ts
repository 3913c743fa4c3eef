// Numbers of migration files: continues the numbering that a directory already has, so the new files run last.

/**
 * `index`: 0003. `milliseconds`: since 1970, 13 digits. `seconds` and `utc`: date and time in UTC, to the second (14
 * digits) or to the millisecond (17 digits).
 */
export type Numbering = 'index' | 'milliseconds' | 'seconds' | 'utc';

export type NumberingDefaults = { kind: Numbering; firstIndex: number; digits: number };

/** The next `count` prefixes after the existing ones. An empty directory gets the kind that its tool uses by default. */
export function nextNumbers(
  existing: readonly string[],
  count: number,
  now: Date,
  defaults: NumberingDefaults,
): string[] {
  const last = existing
    .toSorted((one, other) => one.length - other.length || (one < other ? -1 : 1))
    .at(-1);
  const kind = last === undefined ? defaults.kind : kindOf(last);
  const steps = Array.from({ length: count }, (_, step) => step);
  if (kind === 'index') {
    const digits = last?.length ?? defaults.digits;
    const first = last === undefined ? defaults.firstIndex : Number(last) + 1;
    return steps.map((step) => String(first + step).padStart(digits, '0'));
  }
  const unitMs = kind === 'seconds' ? 1000 : 1;
  const after = last === undefined ? 0 : timeOf(last, kind) + unitMs;
  const firstMs = Math.max(now.getTime(), after);
  return steps.map((step) => written(firstMs + step * unitMs, kind));
}

function kindOf(prefix: string): Numbering {
  if (prefix.length === 17) return 'utc';
  if (prefix.length === 14) return 'seconds';
  return prefix.length === 13 ? 'milliseconds' : 'index';
}

function timeOf(prefix: string, kind: Numbering): number {
  if (kind === 'milliseconds') return Number(prefix);
  const [year, month, day, hour, minute, second] = [
    prefix.slice(0, 4),
    ...(prefix.slice(4, 14).match(/\d\d/g) ?? []),
  ].map(Number);
  return (
    Date.UTC(year ?? 0, (month ?? 1) - 1, day ?? 1, hour ?? 0, minute ?? 0, second ?? 0) +
    Number(prefix.slice(14) || 0)
  );
}

function written(timeMs: number, kind: Numbering): string {
  if (kind === 'milliseconds') return String(timeMs);
  const digits = new Date(timeMs).toISOString().replaceAll(/\D/g, '');
  return kind === 'utc' ? digits : digits.slice(0, 14);
}
