// The list of in-flight calls: in the order of their start, and a finished call keeps no other call reachable.

import { expect, test } from 'vitest';

import { Call } from '../../src/relay/delivery/call.js';
import { InFlightCalls } from '../../src/relay/delivery/in-flight-calls.js';

function started(count: number): { list: InFlightCalls; calls: Call[] } {
  const list = new InFlightCalls();
  const calls = Array.from({ length: count }, () => new Call('lease', []));
  for (const call of calls) list.add(call);
  return { list, calls };
}

test.each([
  { removed: [0], left: [1, 2] },
  { removed: [1], left: [0, 2] },
  { removed: [2], left: [0, 1] },
  { removed: [2, 0], left: [1] },
  { removed: [0, 1, 2], left: [] },
])('keeps the order when $removed are removed', ({ removed, left }) => {
  const { list, calls } = started(3);
  for (const index of removed) list.remove(calls[index] as Call);
  expect(list.size).toBe(left.length);
  expect(list.first).toBe(calls[left[0] ?? -1]);
  const last = new Call('lease', []);
  list.add(last);
  expect(list.takeWhile(() => true)).toEqual([...left.map((index) => calls[index]), last]);
});

test('a removed call does not keep its neighbours in memory', () => {
  const { list, calls } = started(3);
  const middle = calls[1] as Call;
  list.remove(middle);
  expect(middle).toMatchObject({ before: undefined, after: undefined });
});

test('takes only calls at the beginning', () => {
  const { list, calls } = started(3);
  for (const index of [0, 2]) (calls[index] as Call).startedMs = 1;
  expect(list.takeWhile(({ startedMs }) => startedMs === 1)).toEqual([calls[0]]);
});
