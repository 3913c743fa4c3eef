// Retry policy: when a failed delivery is tried again. The database computes the delays
// (sql/functions/core/retry.sql), so relays, the reaper and workers in other languages agree.

import { checkOptions, integer, list, refuse } from './options.js';

export type RetryPolicy =
  | {
      /** Tries in all, the first one included. Default 10. */
      maxAttempts?: number;
      /** The first delay; it doubles with every try. Default 1,000. */
      baseMs?: number;
      /** The longest delay. Default 300,000. */
      maxMs?: number;
    }
  | {
      /** An explicit schedule: n delays mean one first try and n retries. */
      delaysMs: readonly number[];
    };

export type ResolvedRetryPolicy = {
  maxAttempts: number;
  retryBaseMs: number;
  retryMaxMs: number;
  retryDelaysMs: readonly number[] | null;
};

/** The scheduled delay after this many tries, without jitter: a `Retry-After` counts only if it is longer. */
export function scheduledMs(policy: ResolvedRetryPolicy, tries: number): number {
  const { retryBaseMs, retryMaxMs, retryDelaysMs } = policy;
  if (retryDelaysMs !== null) return retryDelaysMs[Math.min(tries, retryDelaysMs.length) - 1] ?? 0;
  return Math.min(retryBaseMs * 2 ** (tries - 1), retryMaxMs);
}

const tenYearsMs = 315_360_000_000;

export function resolveRetryPolicy(where: string, policy: RetryPolicy = {}): ResolvedRetryPolicy {
  if (typeof policy !== 'object' || policy === null) {
    refuse(where, policy, 'give { maxAttempts, baseMs, maxMs } or { delaysMs: [...] }');
  }
  if ('delaysMs' in policy) {
    const { delaysMs } = checkOptions(where, policy, {
      delaysMs: list(integer({ min: 0, max: tenYearsMs }), { min: 1, max: 100 }),
    });
    return {
      maxAttempts: delaysMs.length + 1,
      retryBaseMs: 0,
      retryMaxMs: 0,
      retryDelaysMs: delaysMs,
    };
  }
  const { maxAttempts, baseMs, maxMs } = checkOptions(where, policy, {
    maxAttempts: integer({ min: 1, max: 1000, default: 10 }),
    baseMs: integer({ min: 1, max: tenYearsMs, default: 1000 }),
    maxMs: integer({ min: 1, max: tenYearsMs, default: 300_000 }),
  });
  return {
    maxAttempts,
    retryBaseMs: Math.min(baseMs, maxMs),
    retryMaxMs: maxMs,
    retryDelaysMs: null,
  };
}
