// The dispatch queue: first come, first served, and fairness between several groups.

import { expect, test } from 'vitest';

import { DispatchQueue } from '../../src/relay/delivery/dispatch-queue.js';

function all<T>(queue: DispatchQueue<T>): T[] {
  const items: T[] = [];
  for (let item = queue.shift(); item !== undefined; item = queue.shift()) items.push(item);
  return items;
}

test('without groups it is first come, first served', () => {
  const queue = new DispatchQueue<number>();
  for (const n of [3, 1, 2]) queue.push(n);
  expect(queue.size).toBe(3);
  expect(queue.first()).toBe(3);
  expect(all(queue)).toEqual([3, 1, 2]);
  expect(queue.size).toBe(0);
  expect(queue.first()).toBeUndefined();
});

test('C10 groups take turns, and a late one waits behind one message of each', () => {
  const queue = new DispatchQueue<string>((item) => item.charAt(0));
  for (const item of ['a1', 'a2', 'a3', 'a4', 'b1', 'b2']) queue.push(item);
  expect([queue.shift(), queue.shift(), queue.shift()]).toEqual(['a1', 'b1', 'a2']);
  queue.push('c1');
  expect(all(queue)).toEqual(['b2', 'a3', 'c1', 'a4']);
});

test('a removed message leaves the others in their place', () => {
  const queue = new DispatchQueue<string>((item) => item.charAt(0));
  for (const item of ['a1', 'a2', 'b1', 'b2']) queue.push(item);
  expect(queue.shift()).toBe('a1');
  expect(queue.remove((item) => item.endsWith('2')).toSorted()).toEqual(['a2', 'b2']);
  expect(queue.size).toBe(1);
  expect(all(queue)).toEqual(['b1']);
});

test('a group that never empties keeps its order', () => {
  const queue = new DispatchQueue<number>();
  const seen: (number | undefined)[] = [];
  for (let n = 0; n < 5000; n += 1) {
    queue.push(n);
    if (n > 0) seen.push(queue.shift());
  }
  expect(seen).toEqual(Array.from({ length: 4999 }, (_, n) => n));
  expect(queue.size).toBe(1);
});
