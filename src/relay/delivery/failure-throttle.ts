// Failure throttle: cuts a failing destination's concurrency to a quarter until a call succeeds. Calls to a
// destination that fails anyway cost processor time, slots and database work that healthy destinations need. A
// circuit breaker does more, but is optional.
//
// There may be thousands of endpoints, and nothing is known of one when it is opened. So an endpoint begins with one call
// and doubles with each success. If its first calls fail, or too many in a row, it rests after each, longer each time.

/** Failed calls in a row, for each call of the concurrency, before the throttle acts. */
const toleratedRounds = 2;
const shortestRestMs = 2000;
const longestRestMs = 30_000;

export class FailureThrottle {
  readonly #concurrency: number;
  readonly #isEndpoint: boolean;
  #failedInARow = 0;
  #hasAnswered = false;
  /** Calls at once that a destination has earned. */
  #trusted: number;

  constructor(concurrency: number, { isEndpoint = false } = {}) {
    this.#concurrency = concurrency;
    this.#isEndpoint = isEndpoint;
    this.#trusted = isEndpoint ? 1 : concurrency;
  }

  /** How many calls may be in flight. Hanging calls do not use up what it has earned, but count towards the limit. */
  concurrency(hanging = 0): number {
    const most = this.#intolerable < 0 ? this.#concurrency : Math.ceil(this.#concurrency / 4);
    return Math.min(this.#trusted + hanging, most);
  }

  /** How long an endpoint rests after its last call, which failed; 0 for none. */
  get restMs(): number {
    if (!this.#isEndpoint || this.#failedInARow === 0) return 0;
    const failures = this.#hasAnswered ? this.#intolerable : this.#failedInARow - 1;
    return failures < 0 ? 0 : Math.min(shortestRestMs * 2 ** failures, longestRestMs);
  }

  /**
   * Counts calls, not messages: a batch of which some messages were delivered has not failed. Null: the destination
   * was not called.
   */
  ended(failed: boolean | null): void {
    if (failed) this.#failedInARow += 1;
    if (failed !== false) return;
    this.#failedInARow = 0;
    this.#hasAnswered = true;
    this.#trusted = Math.min(this.#trusted * 2, this.#concurrency);
  }

  /** Failures in a row beyond the tolerated ones; negative while they are tolerated. */
  get #intolerable(): number {
    return this.#failedInARow - toleratedRounds * this.#concurrency;
  }
}
