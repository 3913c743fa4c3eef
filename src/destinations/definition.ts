// The comparable definition of a destination: where it sends and in which format, without secrets. Two applications can
// share a destination if their definitions are equal, whether they spell out defaults or not; the database keeps only a
// digest.

import { settingKinds } from './destination.js';

/** The values of headers with such names count as secrets. */
const secretHeader = /auth|cookie|credential|key|passw|secret|session|signature|token/;

/**
 * The options without `secrets` and without the settings that all kinds of destinations have. `checked`: the same
 * options with their defaults.
 */
export function definitionOf(options: object, checked: object, secrets: readonly string[]): object {
  const left = new Set([...Object.keys(settingKinds), ...secrets]);
  const given = new Map<string, unknown>(Object.entries(options));
  const shown: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(checked) as [string, unknown][]) {
    if (left.has(name)) continue;
    const part = shownValue(name, given.get(name) ?? value);
    if (!isEmpty(part)) shown[name] = part;
  }
  return shown;
}

/**
 * Removes the values of secret headers, removes user and password from addresses, normalizes addresses, and sorts
 * lists.
 */
function shownValue(name: string, value: unknown): unknown {
  if (name === 'headers') return shownHeaders(value as Readonly<Record<string, string>>);
  if (Array.isArray(value)) return value.map((item) => shownValue('', item)).toSorted(byText);
  if (typeof value === 'function') return 'text' in value ? value.text : undefined;
  if (typeof value !== 'string' || !value.includes('://') || !URL.canParse(value)) return value;
  const address = new URL(value);
  address.username = '';
  address.password = '';
  return address.href;
}

function byText(one: unknown, other: unknown): number {
  return String(one) < String(other) ? -1 : 1;
}

function shownHeaders(headers: Readonly<Record<string, string>>): Record<string, string | null> {
  const shown = Object.entries(headers).map(([given, value]): [string, string | null] => {
    const name = given.toLowerCase();
    return [name, secretHeader.test(name) ? null : value];
  });
  return Object.fromEntries(shown);
}

/** Whether an option is left out, or is an empty list or object. */
function isEmpty(value: unknown): boolean {
  return (
    value === undefined ||
    value === null ||
    (typeof value === 'object' && Object.keys(value).length === 0)
  );
}
