// Failure throttle: cuts a failing destination's concurrency to a quarter until a call succeeds. Calls to a
// destination that fails anyway cost processor time, slots and database work that healthy destinations need. A
// circuit breaker does more, but is optional. An endpoint begins with one call and doubles with each success, because
// nothing is known of it when it is opened. Calls that take long do not count: after each of them, another one may try.

/** Failed calls in a row, for each call of the concurrency, before the throttle acts. */
const toleratedRounds = 2;

export class FailureThrottle {
  readonly #concurrency: number;
  #failedInARow = 0;
  /** Of a destination that is known to answer: its concurrency. */
  #trusted: number;

  constructor(concurrency: number, { isEndpoint = false } = {}) {
    this.#concurrency = concurrency;
    this.#trusted = isEndpoint ? 1 : concurrency;
  }

  /** How many calls may be in flight, of which so many are slow. */
  concurrency(slow = 0): number {
    const isFailing = this.#failedInARow >= toleratedRounds * this.#concurrency;
    const most = isFailing ? Math.ceil(this.#concurrency / 4) : this.#concurrency;
    return Math.min(this.#trusted + slow, most);
  }

  /**
   * Counts calls, not messages: a batch of which some messages were delivered has not failed. Null: the destination
   * was not called.
   */
  ended(failed: boolean | null): void {
    if (failed) this.#failedInARow += 1;
    if (failed !== false) return;
    this.#failedInARow = 0;
    this.#trusted = Math.min(this.#trusted * 2, this.#concurrency);
  }
}
