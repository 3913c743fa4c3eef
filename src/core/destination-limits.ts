// Limits of a destination, with their defaults: the rate limit and the circuit breaker.

import { ConfigurationError } from './errors.js';
import { checkOptions, integer, number, optional } from './options.js';

export type RateLimit = {
  /** Messages in a second, over all relays together. */
  perSecond: number;
  /** Messages that may be sent at once after a pause. Default: as many as in a second. */
  burst?: number;
};

export type ResolvedRate = { perSecond: number; burst: number };

export type BreakerOptions = {
  /** The breaker opens after this many failed calls in a row. Default 10. */
  failures?: number;
  /** The breaker opens when this part of the window's calls has failed. Default 0.5. */
  failureRate?: number;
  /** The failure rate counts only if the window has at least this many calls. Default 20. */
  minimum?: number;
  /** The time over which the failure rate is measured. Default 10,000. */
  windowMs?: number;
  /** How long the breaker stays open the first time; each failed probe doubles it. Default 5,000. */
  openMs?: number;
  /** The longest that the breaker stays open. Default 60,000. */
  maxOpenMs?: number;
  /** Calls that test the destination after the pause; all of them must succeed. Default 1. */
  probes?: number;
};

export type ResolvedBreaker = Required<BreakerOptions>;

export function rateKind(name: string, value: unknown): ResolvedRate | undefined {
  if (value === undefined) return undefined;
  const { perSecond, burst } = checkOptions(name, value as RateLimit, {
    perSecond: number({ min: 0.001, max: 1_000_000 }),
    burst: optional(integer({ min: 1, max: 1_000_000 })),
  });
  return { perSecond, burst: burst ?? Math.max(Math.ceil(perSecond), 1) };
}

export function breakerKind(name: string, value: unknown): ResolvedBreaker | null {
  if (value === undefined || value === null) return null;
  const checked = checkOptions(name, value as BreakerOptions, {
    failures: integer({ min: 1, max: 1_000_000, default: 10 }),
    failureRate: number({ min: 0.01, max: 1, default: 0.5 }),
    minimum: integer({ min: 1, max: 1_000_000, default: 20 }),
    windowMs: integer({ min: 100, max: 3_600_000, default: 10_000 }),
    openMs: integer({ min: 10, max: 3_600_000, default: 5000 }),
    maxOpenMs: integer({ min: 10, max: 86_400_000, default: 60_000 }),
    probes: integer({ min: 1, max: 1000, default: 1 }),
  });
  if (checked.maxOpenMs < checked.openMs)
    throw new ConfigurationError(
      `${name}.maxOpenMs is ${checked.maxOpenMs}: give at least ${name}.openMs, which is ${checked.openMs}`,
    );
  return checked;
}
