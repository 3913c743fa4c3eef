// The concurrency limit over all destinations: a returned slot goes to the next waiter, and each destination has a
// reserved part that no other destination can take.

import { describe, expect, it } from 'vitest';

import { ConcurrencyLimit } from '../../src/relay/delivery/concurrency-limit.js';
import type { Share } from '../../src/relay/delivery/concurrency-limit.js';

const ignore = (): void => undefined;

/** Takes as many slots as it can get. */
function takeAll(share: Share): number {
  let count = 0;
  while (count < share.concurrency && share.take(ignore)) count += 1;
  return count;
}

const sum = (counts: number[]) => counts.reduce((total, count) => total + count, 0);

describe('slots', () => {
  it('P9 never exceed the limit, and a returned slot wakes the next waiter', () => {
    const share = new ConcurrencyLimit(2).join(10);
    const woken: string[] = [];
    const take = (name: string): boolean =>
      share.take(() => {
        if (take(name)) woken.push(name);
      });
    expect([take('a'), take('b'), take('c'), take('d')]).toEqual([true, true, false, false]);
    share.give();
    expect(woken).toEqual(['c']);
    share.give();
    expect(woken).toEqual(['c', 'd']);
  });

  it('P9 a waiter that no longer needs its slot passes it to the next one', () => {
    const share = new ConcurrencyLimit(1).join(10);
    const woken: string[] = [];
    share.take(ignore);
    share.take(() => woken.push('idle'));
    share.take(() => {
      woken.push('busy');
      expect(share.take(ignore)).toBe(true);
    });
    share.give();
    expect(woken).toEqual(['idle', 'busy']);
  });

  it('P9 whatever one destination holds, the others keep their reserved part of one half', () => {
    const slots = new ConcurrencyLimit(100);
    const [greedy, quiet, small] = [slots.join(1000), slots.join(20), slots.join(3)];
    // its 16 reserved slots and all free ones: 100 less 16, 16 and 3
    expect(takeAll(greedy)).toBe(100 - 16 - 3);
    expect(takeAll(small)).toBe(3);
    expect(takeAll(quiet)).toBe(16);
    expect(greedy.take(ignore)).toBe(false);
    // a slot that a small destination returns stays reserved for it
    small.give();
    expect(greedy.take(ignore)).toBe(false);
    expect(quiet.take(ignore)).toBe(false);
    expect(small.take(ignore)).toBe(true);
    // a free slot goes to the next waiter
    greedy.give();
    expect(quiet.take(ignore)).toBe(true);
  });

  it('P9 a new destination gets its part as soon as there is room, and a removed one makes room', () => {
    const slots = new ConcurrencyLimit(10);
    const first = slots.join(10);
    expect(takeAll(first)).toBe(10);
    const second = slots.join(10);
    let woken = 0;
    expect(second.take(() => void (woken += 1))).toBe(false);
    first.give();
    expect(woken).toBe(1);
    expect(second.take(ignore)).toBe(true);
    first.leave();
    expect(takeAll(second)).toBe(9);
  });

  it('P9 with more destinations than slots none has a reserved part, and all get slots in turn', () => {
    const slots = new ConcurrencyLimit(2);
    const shares = Array.from({ length: 5 }, () => slots.join(1));
    const taken = shares.filter((share) => share.take(ignore));
    expect(taken).toHaveLength(2);
    taken[0]?.give();
    expect(shares.at(-1)?.take(ignore)).toBe(true);
  });

  it('P9 all endpoints of one tenant share one part', () => {
    const slots = new ConcurrencyLimit(100);
    const billing = slots.join(100);
    const many = Array.from({ length: 60 }, () => slots.join(5, 'greedy'));
    const quiet = slots.join(5, 'quiet');
    // half of 100 in three parts: 16 for billing, 16 for greedy, and 5 for quiet, which needs no more
    expect(sum(many.map(takeAll))).toBe(100 - 16 - 5 - 4);
    expect(takeAll(quiet)).toBe(5);
    // 4 slots are left for other destinations than endpoints: greedy holds more than three times as many
    expect(takeAll(billing)).toBe(20);
    expect(many[0]?.take(ignore)).toBe(false);
  });

  it('P9 with more tenants than slots, tenants whose endpoints hang leave slots for others', () => {
    const slots = new ConcurrencyLimit(100);
    const tenants = Array.from({ length: 200 }, (_, n) => slots.join(5, `tenant-${n}`));
    const greedy = Array.from({ length: 60 }, () => slots.join(5, 'greedy'));
    const hungry = Array.from({ length: 60 }, () => slots.join(5, 'hungry'));
    // at most three times the number of free slots: three quarters for one tenant
    expect(sum(greedy.map(takeAll))).toBe(75);
    expect(sum(hungry.map(takeAll))).toBe(19);
    expect(sum(tenants.slice(0, 6).map((share) => Number(share.take(ignore))))).toBe(6);
  });

  it('P9 a tenant at its limit waits, and is called when more slots are free', () => {
    const slots = new ConcurrencyLimit(8);
    const other = slots.join(8, 'other');
    const tenants = Array.from({ length: 10 }, (_, n) => slots.join(1, `tenant-${n}`));
    const [first, second] = [slots.join(8, 'greedy'), slots.join(8, 'greedy')];
    expect(other.take(ignore) && other.take(ignore)).toBe(true);
    const taken = takeAll(first);
    let woken = 0;
    expect(second.take(() => void (woken += 1))).toBe(false);
    expect(tenants[0]?.take(ignore)).toBe(true);
    tenants[0]?.give();
    expect(woken).toBe(0);
    other.give();
    other.give();
    expect(woken).toBe(1);
    expect(taken).toBe(5);
  });

  it('P9 a slow call of an endpoint gives its slot to others, up to ten times the limit', () => {
    const slots = new ConcurrencyLimit(2);
    const [hanging, healthy] = [slots.join(1000, 'hanging'), slots.join(5, 'healthy')];
    for (let n = 0; n < 20; n += 1) {
      expect(hanging.take(ignore)).toBe(true);
      expect(hanging.becameSlow()).toBe(true);
    }
    expect(hanging.take(ignore)).toBe(true);
    expect(hanging.becameSlow()).toBe(false);
    expect(healthy.take(ignore)).toBe(true);
    hanging.slowEnded();
    expect(hanging.becameSlow()).toBe(true);
    hanging.leave();
    healthy.give();
    expect([takeAll(healthy), healthy.becameSlow()]).toEqual([2, true]);
  });
});
