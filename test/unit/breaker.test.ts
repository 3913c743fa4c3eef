// The circuit breaker, on a clock that the test moves.

import { describe, expect, it } from 'vitest';

import { delivered, pause, reject, release, retry } from '../../src/core/outcome.js';
import { breakerKind } from '../../src/core/destination-limits.js';
import type { BreakerOptions } from '../../src/core/destination-limits.js';
import { CircuitBreaker, hasFailed } from '../../src/relay/delivery/circuit-breaker.js';
import type { Opening } from '../../src/relay/delivery/circuit-breaker.js';

function breakerWith(options: BreakerOptions) {
  const clock = { ms: 5000 };
  const openings: Opening[] = [];
  const closings: number[] = [];
  const resolved = breakerKind('breaker', options);
  if (resolved === null) throw new Error('there is none');
  const breaker = new CircuitBreaker(
    resolved,
    { opened: (opening) => openings.push(opening), closed: (ms) => closings.push(ms) },
    () => clock.ms,
  );
  const call = (failed: boolean | null) => breaker.end(breaker.begin(), failed);
  return { clock, breaker, call, openings, closings };
}

const many = Number.POSITIVE_INFINITY;

describe('a breaker', () => {
  it('P9 opens after a number of failures in a row, and not if a success was between them', () => {
    const { breaker, call, openings } = breakerWith({ failures: 3, minimum: 1000 });
    for (const failed of [true, true, false, true, true]) call(failed);
    expect([breaker.state, breaker.room]).toEqual(['closed', many]);
    call(true);
    expect([breaker.state, breaker.room]).toEqual(['open', 0]);
    expect(openings).toEqual([{ because: 'failures', failures: 3, forMs: 5000 }]);
  });

  it('P9 opens when too large a share of the last calls failed, once there are enough calls', () => {
    const { breaker, call, openings } = breakerWith({
      failures: 1000,
      failureRate: 0.5,
      minimum: 10,
    });
    for (let n = 0; n < 4; n += 1) [true, false].forEach(call);
    call(true);
    expect(breaker.state).toBe('closed');
    call(true);
    expect(breaker.state).toBe('open');
    expect(openings[0]?.because).toBe('failure_rate');
  });

  it('P9 forgets calls from before the window', () => {
    const { breaker, call, clock } = breakerWith({ failures: 1000, minimum: 10, windowMs: 1000 });
    for (let n = 0; n < 9; n += 1) call(true);
    clock.ms += 1101;
    call(true);
    expect(breaker.state).toBe('closed');
  });

  it('P9 lets a probe through after a pause, and a success closes it', () => {
    const { breaker, call, clock, closings } = breakerWith({ failures: 1, openMs: 100 });
    call(true);
    clock.ms += 99;
    expect(breaker.room).toBe(0);
    clock.ms += 1;
    expect([breaker.state, breaker.room]).toEqual(['half-open', 1]);
    const probe = breaker.begin();
    expect(breaker.room).toBe(0);
    breaker.end(probe, false);
    expect([breaker.state, breaker.room]).toEqual(['closed', many]);
    expect(closings).toEqual([100]);
  });

  it('P9 a failed probe doubles the pause up to the limit, and a success resets it', () => {
    const { call, clock, openings } = breakerWith({ failures: 1, openMs: 100, maxOpenMs: 350 });
    call(true);
    for (const { forMs } of [{ forMs: 100 }, { forMs: 200 }, { forMs: 350 }]) {
      clock.ms += forMs;
      call(true);
    }
    expect(openings.map(({ forMs }) => forMs)).toEqual([100, 200, 350, 350]);
    clock.ms += 350;
    call(false);
    call(true);
    expect(openings.at(-1)).toEqual({ because: 'failures', failures: 1, forMs: 100 });
  });

  it('P9 closes only when all probes succeed', () => {
    const { breaker, clock, call } = breakerWith({ failures: 1, openMs: 100, probes: 2 });
    call(true);
    clock.ms += 100;
    const [first, second] = [breaker.begin(), breaker.begin()];
    expect(breaker.room).toBe(0);
    breaker.end(first, false);
    expect([breaker.state, breaker.room]).toEqual(['half-open', 0]);
    breaker.end(second, false);
    expect(breaker.state).toBe('closed');
  });

  it('P9 a probe without an outcome makes room for another', () => {
    const { breaker, clock, call } = breakerWith({ failures: 1, openMs: 100 });
    call(true);
    clock.ms += 100;
    call(null);
    expect([breaker.state, breaker.room]).toEqual(['half-open', 1]);
  });

  it('P9 calls from before it opened neither close nor open it', () => {
    const { breaker, clock, call } = breakerWith({ failures: 1, openMs: 100 });
    const [early, late] = [breaker.begin(), breaker.begin()];
    call(true);
    breaker.end(early, false);
    expect(breaker.state).toBe('open');
    clock.ms += 100;
    expect(breaker.state).toBe('half-open');
    breaker.end(late, true);
    expect([breaker.state, breaker.room]).toEqual(['half-open', 1]);
  });

  it('P9 a rejection counts as an answer; a call that was never made counts as nothing', () => {
    const failed = retry({ code: 'timeout' });
    expect(hasFailed([failed])).toBe(true);
    expect(hasFailed([failed, failed])).toBe(true);
    expect(hasFailed([failed, delivered()])).toBe(false);
    expect(hasFailed([failed, reject({ code: 'http_status' })])).toBe(false);
    const silent = [
      release(),
      pause({ code: 'gone' }),
      reject({ code: 'guard_refused' }),
      retry({ code: 'guard_failed' }),
      retry({ code: 'stopped' }),
    ];
    expect(hasFailed(silent)).toBeNull();
    expect(hasFailed([...silent, failed])).toBe(true);
  });

  it('is off by default, and refuses invalid options', () => {
    expect(breakerKind('breaker', undefined)).toBeNull();
    expect(breakerKind('breaker', null)).toBeNull();
    expect(() => breakerKind('breaker', { openMs: 100, maxOpenMs: 99 })).toThrow(
      'breaker.maxOpenMs is 99: give at least breaker.openMs, which is 100',
    );
    expect(() => breakerKind('breaker', { failureRate: 2 })).toThrow('a number from 0.01 to 1');
    expect(() => breakerKind('breaker', { faliures: 2 })).toThrow('breaker.faliures is not');
  });
});
