// Failure throttle: cuts a failing destination's concurrency to a quarter until a call succeeds. Calls to a
// destination that fails anyway cost processor time, slots and database work that healthy destinations need. A
// circuit breaker does more, but is optional.

/** Failed calls in a row, for each call of the concurrency, before the throttle acts. */
const toleratedRounds = 2;

export class FailureThrottle {
  readonly #concurrency: number;
  #failedInARow = 0;

  constructor(concurrency: number) {
    this.#concurrency = concurrency;
  }

  get concurrency(): number {
    return this.#failedInARow < toleratedRounds * this.#concurrency
      ? this.#concurrency
      : Math.ceil(this.#concurrency / 4);
  }

  /**
   * Counts calls, not messages: a batch of which some messages were delivered has not failed. Null: the destination
   * was not called.
   */
  ended(failed: boolean | null): void {
    if (failed) this.#failedInARow += 1;
    else if (failed === false) this.#failedInARow = 0;
  }
}
