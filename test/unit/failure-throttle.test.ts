// The failure throttle: how many calls a destination may have in flight.

import { describe, expect, it } from 'vitest';

import { FailureThrottle } from '../../src/relay/delivery/failure-throttle.js';

describe('the failure throttle', () => {
  it('cuts the concurrency of a failing destination to a quarter until a call succeeds', () => {
    const throttle = new FailureThrottle(8);
    for (let n = 0; n < 15; n += 1) throttle.ended(true);
    expect(throttle.concurrency()).toBe(8);
    throttle.ended(true);
    expect(throttle.concurrency()).toBe(2);
    throttle.ended(null);
    expect(throttle.concurrency()).toBe(2);
    throttle.ended(false);
    expect(throttle.concurrency()).toBe(8);
  });

  it('lets an endpoint begin with one call, and doubles with each success', () => {
    const throttle = new FailureThrottle(5, { isEndpoint: true });
    const seen = [true, null, false, false, false].map((failed) => {
      throttle.ended(failed);
      return throttle.concurrency();
    });
    expect(seen).toEqual([1, 1, 2, 4, 5]);
    expect(throttle.concurrency(3)).toBe(5);
    expect(new FailureThrottle(5, { isEndpoint: true }).concurrency(3)).toBe(4);
  });
});
