// Messages as tests look at them, and the assertions on them. A failed assertion says what was looked for, what was
// there, and which message came nearest.

import { checkOptions, anything } from '../core/options.js';
import { assertionFailed } from './errors.js';
import { differences, sizeOf, value } from './match.js';
import type { Difference } from './match.js';

/** A message that was enqueued. */
export type EnqueuedMessage = {
  id: string;
  topic: string;
  namespace: string;
  tenantId: string | null;
  key: string | null;
  /** The number within its key; null without a key. */
  sequence: string | null;
  dedupeKey: string | null;
  aggregateType: string | null;
  aggregateId: string | null;
  headers: Record<string, string>;
  payload: unknown;
};

/**
 * What a test expects of a message. Fields that are left out may have any value, and so may fields of objects within
 * `payload` and `headers`. A value can be a function that returns whether it fits, a regular expression, or a matcher
 * such as `expect.any(String)`.
 */
export type ExpectedMessage = { [Field in keyof EnqueuedMessage]?: unknown };

const expectedKinds = Object.fromEntries(
  (
    [
      'id',
      'topic',
      'namespace',
      'tenantId',
      'key',
      'sequence',
      'dedupeKey',
      'aggregateType',
      'aggregateId',
      'headers',
      'payload',
    ] satisfies (keyof EnqueuedMessage)[]
  ).map((field) => [field, anything<unknown>()]),
);

/** Refuses a misspelt field, which would fit every message. */
export function checkExpected(where: string, expected: ExpectedMessage): ExpectedMessage {
  checkOptions(where, expected, expectedKinds);
  return expected;
}

export function isAsExpected(message: object, expected: object): boolean {
  return fieldDifferences(expected, message).length === 0;
}

/** Asserts that a message was enqueued, or exactly `count`; returns the first. */
export function assertEnqueued(
  messages: readonly EnqueuedMessage[],
  expected: ExpectedMessage,
  { count, where }: { count: number | undefined; where: string },
): EnqueuedMessage {
  const found = messages.filter((message) => isAsExpected(message, expected));
  const [first] = found;
  if (first !== undefined && (count === undefined || found.length === count)) return first;
  if (first !== undefined)
    return assertionFailed(
      [
        `${found.length} messages fit, and ${String(count)} were expected:`,
        ...wanted(expected),
        '',
        ...listed(found),
      ].join('\n'),
      count,
      found.length,
    );
  const nearest = nearestOf(messages, expected);
  return assertionFailed(
    [
      'no message was enqueued with',
      ...wanted(expected),
      '',
      messages.length === 0
        ? `Nothing was enqueued ${where}.`
        : `Enqueued ${where}, ${messages.length} in all:`,
      ...listed(messages),
      ...(nearest === undefined
        ? []
        : ['', `Nearest is number ${nearest.number}, which differs in`]),
      ...(nearest?.found.map(({ path, text }) => `  ${path}: ${text}`) ?? []),
    ].join('\n'),
    expected,
    nearest?.message,
  );
}

export function assertNotEnqueued(
  messages: readonly EnqueuedMessage[],
  expected: ExpectedMessage,
): void {
  const found = messages.filter((message) => isAsExpected(message, expected));
  if (found.length === 0) return;
  assertionFailed(
    [
      'no message was expected with',
      ...wanted(expected),
      '',
      `${found.length === 1 ? 'One was' : `${found.length} were`} enqueued:`,
      ...listed(found),
    ].join('\n'),
    [],
    found,
  );
}

const mostListed = 20;

function listed(messages: readonly EnqueuedMessage[]): string[] {
  const lines = messages
    .slice(0, mostListed)
    .map((message, index) => `  ${index + 1}. ${describeMessage(message)}`);
  const more = messages.length - lines.length;
  return more > 0 ? [...lines, `  … and ${more} more`] : lines;
}

function describeMessage({ topic, tenantId, key, payload }: EnqueuedMessage): string {
  return [
    topic,
    ...(tenantId === null ? [] : [`tenant ${value(tenantId)}`]),
    ...(key === null ? [] : [`key ${value(key)}`]),
    value(payload),
  ].join('  ');
}

function wanted(expected: ExpectedMessage): string[] {
  const fields = Object.entries(expected).filter(([, part]) => part !== undefined);
  return fields.length === 0
    ? ['  any fields']
    : fields.map(([name, part]) => `  ${name}: ${value(part)}`);
}

function fieldDifferences(expected: object, message: object): Difference[] {
  const given = new Map<string, unknown>(Object.entries(message));
  return Object.entries(expected)
    .filter(([, part]) => part !== undefined)
    .flatMap(([name, part]: [string, unknown]) => differences(part, given.get(name), name));
}

type Nearest = { number: number; message: EnqueuedMessage; found: Difference[] };

/** The message with the fewest differences. A different topic weighs as much as all expected values together. */
function nearestOf(
  messages: readonly EnqueuedMessage[],
  expected: ExpectedMessage,
): Nearest | undefined {
  const size = sizeOf(expected);
  const weight = ({ found }: Nearest): number =>
    found.reduce((sum, { path }) => sum + (path === 'topic' ? size : 1), 0);
  const candidates = messages.map((message, index) => {
    const found = fieldDifferences(expected, message);
    return { number: index + 1, message, found };
  });
  return candidates.toSorted((one, other) => weight(one) - weight(other))[0];
}
