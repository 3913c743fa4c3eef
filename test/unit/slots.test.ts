// The bound over all destinations: a slot that is given back goes to whoever can use it, and each destination has a
// part that nobody else can take.

import { describe, expect, it } from 'vitest';

import { Slots } from '../../src/relay/slots.js';
import type { Share } from '../../src/relay/slots.js';

const nobody = (): void => undefined;

/** Takes as many as it can get. */
function takeAll(share: Share): number {
  let count = 0;
  while (count < share.concurrency && share.take(nobody)) count += 1;
  return count;
}

describe('slots', () => {
  it('P9 no more are taken than there are, and one that is given back wakes who waits', () => {
    const share = new Slots(2).join(10);
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

  it('P9 a waiter that has no use for the slot any more does not keep it from the next', () => {
    const share = new Slots(1).join(10);
    const woken: string[] = [];
    share.take(nobody);
    share.take(() => woken.push('idle'));
    share.take(() => {
      woken.push('busy');
      expect(share.take(nobody)).toBe(true);
    });
    share.give();
    expect(woken).toEqual(['idle', 'busy']);
  });

  it('P9 whatever one destination holds, the others have their part of one half', () => {
    const slots = new Slots(100);
    const [greedy, quiet, small] = [slots.join(1000), slots.join(20), slots.join(3)];
    // 16 of its own, and all that is nobody's: 100 less 16, 16 and 3
    expect(takeAll(greedy)).toBe(100 - 16 - 3);
    expect(takeAll(small)).toBe(3);
    expect(takeAll(quiet)).toBe(16);
    expect(greedy.take(nobody)).toBe(false);
    // what a small one gives back stays its own
    small.give();
    expect(greedy.take(nobody)).toBe(false);
    expect(quiet.take(nobody)).toBe(false);
    expect(small.take(nobody)).toBe(true);
    // what was nobody's goes to whoever waits
    greedy.give();
    expect(quiet.take(nobody)).toBe(true);
  });

  it('P9 a newcomer gets its part as soon as there is room, and what leaves makes room', () => {
    const slots = new Slots(10);
    const first = slots.join(10);
    expect(takeAll(first)).toBe(10);
    const second = slots.join(10);
    let woken = 0;
    expect(second.take(() => void (woken += 1))).toBe(false);
    first.give();
    expect(woken).toBe(1);
    expect(second.take(nobody)).toBe(true);
    first.leave();
    expect(takeAll(second)).toBe(9);
  });

  it('P9 with more destinations than slots nobody has a part, and all come to their turn', () => {
    const slots = new Slots(2);
    const shares = Array.from({ length: 5 }, () => slots.join(1));
    const taken = shares.filter((share) => share.take(nobody));
    expect(taken).toHaveLength(2);
    taken[0]?.give();
    expect(shares.at(-1)?.take(nobody)).toBe(true);
  });
});
