// Who is next: the order of coming, and turns of several lines.

import { expect, test } from 'vitest';

import { WaitingLine } from '../../src/relay/waiting-line.js';

function all<T>(line: WaitingLine<T>): T[] {
  const items: T[] = [];
  for (let item = line.shift(); item !== undefined; item = line.shift()) items.push(item);
  return items;
}

test('without lines it is first come, first served', () => {
  const line = new WaitingLine<number>();
  for (const n of [3, 1, 2]) line.push(n);
  expect(line.size).toBe(3);
  expect(line.first()).toBe(3);
  expect(all(line)).toEqual([3, 1, 2]);
  expect(line.size).toBe(0);
  expect(line.first()).toBeUndefined();
});

test('C10 lines take turns, and one that comes late waits behind one of each', () => {
  const line = new WaitingLine<string>((item) => item.charAt(0));
  for (const item of ['a1', 'a2', 'a3', 'a4', 'b1', 'b2']) line.push(item);
  expect([line.shift(), line.shift(), line.shift()]).toEqual(['a1', 'b1', 'a2']);
  line.push('c1');
  expect(all(line)).toEqual(['b2', 'a3', 'c1', 'a4']);
});

test('what is removed leaves the others where they were', () => {
  const line = new WaitingLine<string>((item) => item.charAt(0));
  for (const item of ['a1', 'a2', 'b1', 'b2']) line.push(item);
  expect(line.shift()).toBe('a1');
  expect(line.remove((item) => item.endsWith('2')).toSorted()).toEqual(['a2', 'b2']);
  expect(line.size).toBe(1);
  expect(all(line)).toEqual(['b1']);
});

test('a line that never empties keeps its order', () => {
  const line = new WaitingLine<number>();
  const seen: (number | undefined)[] = [];
  for (let n = 0; n < 5000; n += 1) {
    line.push(n);
    if (n > 0) seen.push(line.shift());
  }
  expect(seen).toEqual(Array.from({ length: 4999 }, (_, n) => n));
  expect(line.size).toBe(1);
});
