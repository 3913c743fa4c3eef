// Call gate: decides whether the next call of a destination may begin. Each limit is one condition of `enter`: the
// destination's concurrency, which the failure throttle may cut; the circuit breaker; the rate limiter; and the relay's
// concurrency limit. It also tells the claim gate how much could be sent soon.

import type { Outcome } from '../../core/outcome.js';
import type { Call } from './call.js';
import { hasFailed } from './circuit-breaker.js';
import type { CircuitBreaker } from './circuit-breaker.js';
import type { Share } from './concurrency-limit.js';
import { FailureThrottle } from './failure-throttle.js';
import type { InFlightCalls } from './in-flight-calls.js';
import type { TokenBucket } from './rate-limiter.js';

export type CallGateOptions = {
  concurrency: number;
  inFlight: InFlightCalls;
  /** The destination's part of the relay's concurrency limit. */
  slots: Share;
  isEndpoint: boolean;
  rate: TokenBucket | undefined;
  breaker: CircuitBreaker | undefined;
};

/** After this time without an answer, another call to the endpoint may start. */
const hangingMs = 5000;
/** A second's worth of tokens, and half a second on top. */
const limitedForMs = 1500;

export class CallGate {
  readonly #options: CallGateOptions;
  readonly #throttle: FailureThrottle;
  /** Set while a call waits for tokens. */
  #tokenTimer: NodeJS.Timeout | undefined;
  /** Set while a call waits for the end of a rest. */
  #restTimer: NodeJS.Timeout | undefined;
  #restUntilMs = 0;
  /** When a call last had to wait for tokens. */
  #limitedMs = Number.NEGATIVE_INFINITY;

  constructor(options: CallGateOptions) {
    this.#options = options;
    this.#throttle = new FailureThrottle(options.concurrency, options);
  }

  /**
   * Lets a call begin. If a rest, the rate limit or the relay's slots refuse it, `whenFree` is called later. Otherwise the
   * dispatcher tries again when a call ends.
   */
  enter(call: Call, whenFree: () => void): boolean {
    const { concurrency, inFlight, slots, rate, breaker } = this.#options;
    if (
      !this.hasFreeCall ||
      // a call that ignores its abort has an extra slot, so the number of calls stays bounded
      inFlight.size + inFlight.overdue >= 2 * concurrency ||
      breaker?.room === 0 ||
      !this.#hasRested(whenFree) ||
      !this.#hasTokens(call, whenFree) ||
      !slots.take(whenFree)
    )
      return false;
    rate?.take(call.messages.length);
    call.breakerEpoch = breaker?.begin() ?? 0;
    return true;
  }

  /** A call has ended. Its outcomes may close the gate, or open it again. */
  leave(call: Call, outcomes: readonly Outcome[]): void {
    const { slots, breaker } = this.#options;
    const failed = hasFailed(outcomes);
    this.#throttle.ended(failed);
    if (failed !== null) this.#rest(this.#throttle.restMs);
    breaker?.end(call.breakerEpoch, failed);
    if (call.isSlow) slots.slowEnded();
    else slots.give();
  }

  /** A call has had no answer for a while. That of an endpoint gives its slot to others. */
  slow(call: Call): void {
    const { isEndpoint, slots } = this.#options;
    if (isEndpoint && !call.isSlow) call.isSlow = slots.becameSlow();
  }

  /** No call may begin for a while, because the last ones failed. */
  get isResting(): boolean {
    return this.#restUntilMs > performance.now();
  }

  /** Calls take long, or wait because the last ones failed. */
  get isWaiting(): boolean {
    return this.#options.slots.slow > 0 || this.isResting;
  }

  /** The circuit breaker is open: nothing may be sent, and nothing should wait here to be sent. */
  get isClosed(): boolean {
    return this.#options.breaker?.state === 'open';
  }

  /** The concurrency allows another call. */
  get hasFreeCall(): boolean {
    const { inFlight, isEndpoint } = this.#options;
    const sinceMs = performance.now() - hangingMs;
    const hanging = isEndpoint ? inFlight.takeWhile(({ startedMs }) => startedMs < sinceMs) : [];
    return inFlight.size < this.#throttle.concurrency(hanging.length);
  }

  /** Messages that the rate limit lets through soon. */
  get soon(): number {
    return this.#options.rate?.soon ?? Number.POSITIVE_INFINITY;
  }

  /** Probes that the circuit breaker allows now; undefined while it is closed and allows any number of calls. */
  get probes(): number | undefined {
    const { breaker } = this.#options;
    return breaker === undefined || breaker.state === 'closed' ? undefined : breaker.room;
  }

  /** A call waits for tokens, or did recently. Between two claims no call may wait although the limit is used up. */
  get limited(): boolean {
    return performance.now() - this.#limitedMs < limitedForMs || this.#options.rate?.soon === 0;
  }

  close(): void {
    clearTimeout(this.#tokenTimer);
    clearTimeout(this.#restTimer);
    this.#options.slots.leave();
  }

  #rest(ms: number): void {
    this.#restUntilMs = performance.now() + ms;
    clearTimeout(this.#restTimer);
    this.#restTimer = undefined;
  }

  #hasRested(whenFree: () => void): boolean {
    const waitMs = this.#restUntilMs - performance.now();
    if (waitMs <= 0) return true;
    this.#restTimer ??= setTimeout(() => {
      this.#restTimer = undefined;
      whenFree();
    }, Math.ceil(waitMs));
    return false;
  }

  #hasTokens({ messages }: Call, whenFree: () => void): boolean {
    const waitMs = this.#options.rate?.waitMs(messages.length) ?? 0;
    if (waitMs === 0) return true;
    this.#limitedMs = performance.now();
    this.#tokenTimer ??= setTimeout(() => {
      this.#tokenTimer = undefined;
      whenFree();
    }, Math.ceil(waitMs));
    return false;
  }
}
