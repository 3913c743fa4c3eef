// Errors of the test kit: one class for misuse and for a delivery that cannot go on, and the failure of an assertion,
// which is an AssertionError of Node, so that every test runner reports it as a failed test.

import { AssertionError } from 'node:assert';

import { shown, WaybillError } from '../core/errors.js';

export class TestKitError extends WaybillError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('test_kit', message, options);
  }
}

export function assertionFailed(message: string, expected: unknown, actual: unknown): never {
  throw new AssertionError({ message, expected, actual, operator: 'enqueued' });
}

export function unknownDestination(name: unknown, known: readonly string[]): TestKitError {
  const list = known.length === 0 ? 'the configuration has none' : `use ${known.join(', ')}`;
  return new TestKitError(`there is no destination ${shown(name)} to deliver to: ${list}`);
}
