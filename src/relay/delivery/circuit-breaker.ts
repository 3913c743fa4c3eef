// Circuit breaker of one destination at one relay:
//
//   closed     calls are allowed, and counted.
//   open       after too many failures: nothing is claimed, so pending messages wait and spend no try.
//   half-open  after a pause: as many calls as there are probes. Success closes it; a failure opens it for twice
//              as long.
//
// It decides by outcomes and its clock, and calls nothing but its event handlers. Calls that began before the last
// change of state are not counted, because they say nothing about the present.

import type { BreakerReport } from '../../database/definitions.js';
import type { Outcome } from '../../core/outcome.js';
import type { ResolvedBreaker } from '../../core/destination-limits.js';

export type BreakerState = 'closed' | 'open' | 'half-open';

export type Opening = {
  /** Too many failures in a row, too high a failure rate, or a failed probe. */
  because: 'failures' | 'failure_rate' | 'probe';
  /** Failed calls in a row. */
  failures: number;
  forMs: number;
};

export type BreakerEvents = {
  opened: (opening: Opening) => void;
  closed: (openForMs: number) => void;
};

/** The number of slices of the sliding window. */
const slices = 10;

type Slice = { number: number; calls: number; failed: number };

export class CircuitBreaker {
  readonly #options: ResolvedBreaker;
  readonly #events: BreakerEvents;
  readonly #now: () => number;
  #state: BreakerState = 'closed';
  /** Rises with every change of state: a call counts only in the state in which it began. */
  #epoch = 1;
  #inARow = 0;
  #slices: Slice[] = [];
  #openMs: number;
  #openUntilMs = 0;
  #openedMs = 0;
  /** The time of the last opening, apart from failed probes, for operators. */
  #since = '';
  #probing = 0;
  #probed = 0;

  constructor(options: ResolvedBreaker, events: BreakerEvents, now = () => performance.now()) {
    this.#options = options;
    this.#events = events;
    this.#now = now;
    this.#openMs = options.openMs;
  }

  get state(): BreakerState {
    if (this.#state === 'open' && this.#now() >= this.#openUntilMs) {
      this.#state = 'half-open';
      this.#epoch += 1;
      this.#probing = 0;
      this.#probed = 0;
    }
    return this.#state;
  }

  /** For operators; undefined while it is closed. */
  get report(): BreakerReport | undefined {
    const { state } = this;
    if (state === 'closed') return undefined;
    return { state, since: this.#since, failures: this.#inARow };
  }

  /** How many calls may begin now. */
  get room(): number {
    const { state } = this;
    if (state === 'closed') return Number.POSITIVE_INFINITY;
    if (state === 'open') return 0;
    return Math.max(this.#options.probes - this.#probing - this.#probed, 0);
  }

  /** A call begins. Returns the epoch, which end() needs. */
  begin(): number {
    if (this.state === 'half-open') this.#probing += 1;
    return this.#epoch;
  }

  /** `failed` is null if the call says nothing about the destination. */
  end(epoch: number, failed: boolean | null): void {
    if (epoch !== this.#epoch || this.state === 'open') return;
    if (this.#state === 'half-open') this.#probeEnded(failed);
    else if (failed !== null) this.#count(failed);
  }

  #probeEnded(failed: boolean | null): void {
    this.#probing -= 1;
    if (failed === null) return;
    if (failed) {
      this.#inARow += 1;
      this.#openMs = Math.min(this.#openMs * 2, this.#options.maxOpenMs);
      return this.#open('probe');
    }
    this.#probed += 1;
    if (this.#probed < this.#options.probes) return;
    this.#state = 'closed';
    this.#epoch += 1;
    this.#inARow = 0;
    this.#slices = [];
    this.#openMs = this.#options.openMs;
    this.#events.closed(this.#now() - this.#openedMs);
  }

  #count(failed: boolean): void {
    const { failures, failureRate, minimum, windowMs } = this.#options;
    this.#inARow = failed ? this.#inARow + 1 : 0;
    const number = Math.floor(this.#now() / (windowMs / slices));
    this.#slices = this.#slices.filter((slice) => slice.number > number - slices);
    let slice = this.#slices.at(-1);
    if (slice?.number !== number) {
      slice = { number, calls: 0, failed: 0 };
      this.#slices.push(slice);
    }
    slice.calls += 1;
    if (!failed) return;
    slice.failed += 1;
    if (this.#inARow >= failures) return this.#open('failures');
    const sum = (of: 'calls' | 'failed') => this.#slices.reduce((all, each) => all + each[of], 0);
    const calls = sum('calls');
    if (calls >= minimum && sum('failed') / calls >= failureRate) this.#open('failure_rate');
  }

  #open(because: Opening['because']): void {
    const nowMs = this.#now();
    if (because !== 'probe') {
      this.#openedMs = nowMs;
      this.#since = new Date().toISOString();
    }
    this.#state = 'open';
    this.#epoch += 1;
    this.#openUntilMs = nowMs + this.#openMs;
    this.#events.opened({ because, failures: this.#inARow, forMs: this.#openMs });
  }
}

/**
 * Whether a call has failed as a whole: at least one message has to be retried, and none was delivered or rejected
 * (a rejection is an answer too). Null if the destination was not called.
 */
export function hasFailed(outcomes: readonly Outcome[]): boolean | null {
  let failed: boolean | null = null;
  for (const outcome of outcomes) {
    const { kind } = outcome;
    if (kind === 'delivered') return false;
    if (kind === 'release' || kind === 'pause' || notAsked.has(outcome.code)) continue;
    if (kind === 'reject') return false;
    failed = true;
  }
  return failed;
}

const notAsked = new Set(['guard_refused', 'guard_failed', 'stopped']);
