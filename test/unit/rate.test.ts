// The token bucket of the rate limit, on a clock that the test moves.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { rateKind } from '../../src/core/destination-limits.js';
import { newcomerMs, TokenBucket } from '../../src/relay/delivery/rate-limiter.js';

function bucketAt(perSecond: number, burst: number, relays = 1) {
  const clock = { ms: 1000 };
  const bucket = new TokenBucket({ perSecond, burst }, relays, () => clock.ms);
  const taken = () => {
    let count = 0;
    while (bucket.take(1)) count += 1;
    return count;
  };
  return { clock, bucket, taken };
}

describe('a rate limit', () => {
  it('P9 lets the burst through at once, and then its rate per second', () => {
    const { clock, bucket, taken } = bucketAt(10, 3);
    expect(taken()).toBe(3);
    expect(bucket.waitMs(1)).toBeCloseTo(100);
    clock.ms += 99;
    expect(taken()).toBe(0);
    clock.ms += 1;
    expect(taken()).toBe(1);
    clock.ms += 60_000;
    expect(taken()).toBe(3);
  });

  it('P9 counts the messages of a batch; one larger than the burst delays the next', () => {
    const { clock, bucket } = bucketAt(10, 5);
    expect(bucket.take(20)).toBe(true);
    expect(bucket.take(1)).toBe(false);
    clock.ms += 1500;
    expect(bucket.take(1)).toBe(false);
    clock.ms += 100;
    expect(bucket.take(1)).toBe(true);
  });

  it('P9 is shared by the living relays', () => {
    const { clock, bucket, taken } = bucketAt(10, 4);
    expect(taken()).toBe(4);
    bucket.share(2);
    clock.ms += 1000;
    expect(taken()).toBe(2);
    clock.ms += 200;
    expect(taken()).toBe(1);
    bucket.share(1);
    clock.ms += 400;
    expect(taken()).toBe(4);
  });

  it('P9 a new relay sends nothing until the others must know of it', () => {
    const { clock, bucket, taken } = bucketAt(10, 10, 2);
    expect(taken()).toBe(0);
    // and holds nothing meanwhile
    expect(bucket.soon).toBe(0);
    clock.ms += newcomerMs - 1;
    expect(taken()).toBe(0);
    expect(bucket.waitMs(1)).toBeCloseTo(201);
    expect(bucket.soon).toBe(5);
    clock.ms += 201;
    expect(taken()).toBe(1);
  });

  it('P9 never lets more through than the limit and one burst, however it is called', () => {
    const asks = fc.array(fc.tuple(fc.nat(500), fc.integer({ min: 1, max: 4 })), {
      maxLength: 200,
    });
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 4, max: 20 }),
        asks,
        (perSecond, burst, steps) => {
          const { clock, bucket } = bucketAt(perSecond, burst);
          const startedMs = clock.ms;
          let sent = 0;
          for (const [waitMs, count] of steps) {
            clock.ms += waitMs;
            if (bucket.take(count)) sent += count;
            expect(sent).toBeLessThanOrEqual(
              burst + (perSecond * (clock.ms - startedMs)) / 1000 + 1e-3,
            );
          }
        },
      ),
    );
  });

  it('has a burst of one second by default, and refuses invalid options', () => {
    expect(rateKind('rate', { perSecond: 7.5 })).toEqual({ perSecond: 7.5, burst: 8 });
    expect(rateKind('rate', { perSecond: 0.1 })).toEqual({ perSecond: 0.1, burst: 1 });
    expect(() => rateKind('rate', {})).toThrow('rate.perSecond is undefined: give a number from');
    expect(() => rateKind('rate', { perSecond: Number.NaN })).toThrow('rate.perSecond is NaN');
    expect(() => rateKind('rate', { perSecond: 1, burst: 0.5 })).toThrow('rate.burst is 0.5');
  });
});
