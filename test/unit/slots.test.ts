// The bound over all destinations: a slot that is given back goes to whoever can use it.

import { describe, expect, it } from 'vitest';

import { Slots } from '../../src/relay/slots.js';

describe('slots', () => {
  it('P9 no more are taken than there are, and one that is given back wakes who waits', () => {
    const slots = new Slots(2);
    const woken: string[] = [];
    const take = (name: string): boolean =>
      slots.take(() => {
        if (take(name)) woken.push(name);
      });
    expect([take('a'), take('b'), take('c'), take('d')]).toEqual([true, true, false, false]);
    slots.give();
    expect(woken).toEqual(['c']);
    slots.give();
    expect(woken).toEqual(['c', 'd']);
  });

  it('P9 a waiter that has no use for the slot any more does not keep it from the next', () => {
    const slots = new Slots(1);
    const woken: string[] = [];
    slots.take(() => undefined);
    slots.take(() => woken.push('idle'));
    slots.take(() => {
      woken.push('busy');
      expect(slots.take(() => undefined)).toBe(true);
    });
    slots.give();
    expect(woken).toEqual(['idle', 'busy']);
  });
});
