// The failure throttle: how many calls a destination may have in flight, and how long an endpoint rests.

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
    expect(throttle.restMs).toBe(0);
    throttle.ended(false);
    expect(throttle.concurrency()).toBe(8);
  });

  it('lets an endpoint begin with one call, and doubles with each success', () => {
    const throttle = new FailureThrottle(5, { isEndpoint: true });
    expect(throttle.concurrency(3)).toBe(4);
    const seen = [true, null, false, false, false].map((failed) => {
      throttle.ended(failed);
      return throttle.concurrency();
    });
    expect(seen).toEqual([1, 1, 2, 4, 5]);
    expect(throttle.concurrency(3)).toBe(5);
  });

  it('lets an endpoint that has not answered yet rest after each failure', () => {
    const throttle = new FailureThrottle(5, { isEndpoint: true });
    const rests = Array.from({ length: 7 }, () => {
      throttle.ended(true);
      return throttle.restMs;
    });
    expect(rests).toEqual([2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
    throttle.ended(false);
    expect(throttle.restMs).toBe(0);
  });

  it('lets an endpoint that has answered rest only after several failures', () => {
    const throttle = new FailureThrottle(2, { isEndpoint: true });
    throttle.ended(false);
    const rests = Array.from({ length: 6 }, () => {
      throttle.ended(true);
      return throttle.restMs;
    });
    expect(rests).toEqual([0, 0, 0, 2000, 4000, 8000]);
  });
});
