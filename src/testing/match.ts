// Matching: whether a value is as a test expects it, and where it differs. An expected object may leave fields out;
// a list must have the same length. A function is a condition, a regular expression fits texts, and the asymmetric
// matchers of vitest and jest (expect.any, expect.objectContaining …) are asked.

import { isDeepStrictEqual } from 'node:util';

import { shown } from '../core/errors.js';

export type Difference = { path: string; text: string };

type Asymmetric = { asymmetricMatch(value: unknown): boolean };

const longest = 200;

/** The differences between what a test expects and what is there; empty if it fits. */
export function differences(expected: unknown, actual: unknown, path: string): Difference[] {
  if (isAsymmetric(expected))
    return unless(expected.asymmetricMatch(actual), path, describe(expected), actual);
  if (typeof expected === 'function')
    return unless(
      Boolean((expected as (value: unknown) => unknown)(actual)),
      path,
      'a value that the function accepts',
      actual,
    );
  if (expected instanceof RegExp)
    return unless(
      typeof actual === 'string' && fits(expected, actual),
      path,
      String(expected),
      actual,
    );
  if (expected instanceof Date)
    return unless(actual === expected.toJSON(), path, shown(expected.toJSON()), actual);
  if (Array.isArray(expected)) return inList(expected, actual, path);
  if (typeof expected === 'object' && expected !== null) return inObject(expected, actual, path);
  return unless(isDeepStrictEqual(expected, actual), path, value(expected), actual);
}

/** How many single values are expected, to tell how near a message comes. */
export function sizeOf(expected: unknown): number {
  if (typeof expected !== 'object' || expected === null || isAsymmetric(expected)) return 1;
  const parts: unknown[] = Object.values(expected);
  return parts.reduce((sum: number, part) => sum + sizeOf(part), parts.length === 0 ? 1 : 0);
}

/** The value on one line, shortened. */
export function value(given: unknown): string {
  if (isAsymmetric(given)) return describe(given);
  if (typeof given === 'function') return 'a function';
  if (given instanceof RegExp) return String(given);
  if (Array.isArray(given)) return `[${given.map(value).join(', ')}]`;
  if (typeof given === 'object' && given !== null && !(given instanceof Date))
    return `{ ${Object.entries(given)
      .map(([name, part]) => `${name}: ${value(part)}`)
      .join(', ')} }`;
  return shown(given, longest);
}

function inObject(expected: object, actual: unknown, path: string): Difference[] {
  if (typeof actual !== 'object' || actual === null || Array.isArray(actual))
    return [{ path, text: `expected ${value(expected)}, was ${value(actual)}` }];
  const given = new Map<string, unknown>(Object.entries(actual));
  return Object.entries(expected).flatMap(([name, part]: [string, unknown]) => {
    const place = `${path}.${name}`;
    // JSON has no undefined: a field that is expected to be undefined must be missing
    if (part === undefined)
      return given.has(name)
        ? [{ path: place, text: `expected none, was ${value(given.get(name))}` }]
        : [];
    if (!given.has(name)) return [{ path: place, text: `expected ${value(part)}, is missing` }];
    return differences(part, given.get(name), place);
  });
}

function inList(expected: readonly unknown[], actual: unknown, path: string): Difference[] {
  if (!Array.isArray(actual) || actual.length !== expected.length)
    return [{ path, text: `expected ${value(expected)}, was ${value(actual)}` }];
  return expected.flatMap((part, index) => differences(part, actual[index], `${path}[${index}]`));
}

function unless(isFit: boolean, path: string, wanted: string, actual: unknown): Difference[] {
  return isFit ? [] : [{ path, text: `expected ${wanted}, was ${value(actual)}` }];
}

/** A regular expression with the flag g or y remembers where it stopped. */
function fits(pattern: RegExp, text: string): boolean {
  return new RegExp(pattern.source, pattern.flags.replaceAll(/[gy]/g, '')).test(text);
}

function isAsymmetric(expected: unknown): expected is Asymmetric {
  return (
    typeof expected === 'object' &&
    expected !== null &&
    typeof (expected as Partial<Asymmetric>).asymmetricMatch === 'function'
  );
}

function describe(matcher: Asymmetric): string {
  const { toAsymmetricMatcher } = matcher as { toAsymmetricMatcher?: () => string };
  return toAsymmetricMatcher?.call(matcher) ?? 'a matcher';
}
