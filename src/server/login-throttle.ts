// Login throttle: limits failed logins per client address and minute. A valid token always passes, because behind a
// proxy an operator and an attacker share an address. So every secret is looked up (many with one query, see
// features/tokens/access-lookup.ts), and above the limit failures are answered with 429. Tokens cannot be guessed
// because they have 256 random bits, not because of this limit.

import { HttpProblem } from './route.js';

type Options = {
  /** Failures per address and window. */
  limit?: number;
  windowMs?: number;
  now?: () => number;
};

/** Bounds the memory that an attacker with many addresses can fill. */
const mostAddresses = 10_000;

export class LoginThrottle {
  readonly #failures = new Map<string, { count: number; untilMs: number }>();
  readonly #limit: number;
  readonly #windowMs: number;
  readonly #now: () => number;

  constructor({ limit = 20, windowMs = 60_000, now = () => performance.now() }: Options = {}) {
    this.#limit = limit;
    this.#windowMs = windowMs;
    this.#now = now;
  }

  /** Returns what `look` finds; null means a wrong secret, which counts as a failure. Throws 429 above the limit. */
  async check<T>(from: string, look: () => Promise<T | null>): Promise<T | null> {
    const found = await look();
    if (found === null && this.#count(from) > this.#limit)
      throw new HttpProblem(
        429,
        'too many wrong tokens from this address: send a valid one, or wait a minute',
      );
    return found;
  }

  /** Returns the number of failures in the window, including this one. */
  #count(from: string): number {
    const failures = this.#failures.get(from);
    if (failures !== undefined && failures.untilMs > this.#now()) {
      failures.count += 1;
      return failures.count;
    }
    if (this.#failures.size > mostAddresses) this.#failures.clear();
    this.#failures.set(from, { count: 1, untilMs: this.#now() + this.#windowMs });
    return 1;
  }
}
