// The list of calls under way: in the order of their start, and a call that has ended keeps nothing of the others.

import { expect, test } from 'vitest';

import { Call } from '../../src/relay/call.js';
import { UnderWay } from '../../src/relay/under-way.js';

function started(count: number): { list: UnderWay; calls: Call[] } {
  const list = new UnderWay();
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

test('a call that was removed keeps nothing of its neighbours', () => {
  const { list, calls } = started(3);
  const middle = calls[1] as Call;
  list.remove(middle);
  expect(middle).toMatchObject({ before: undefined, after: undefined });
});

test('takes those at the beginning only', () => {
  const { list, calls } = started(3);
  for (const index of [0, 2]) (calls[index] as Call).startedMs = 1;
  expect(list.takeWhile(({ startedMs }) => startedMs === 1)).toEqual([calls[0]]);
});
