// Rate limiter: a token bucket of messages per second, with a burst after a pause. The limit holds for all relays
// together; each takes an equal share by the number of living relays, which it learns from its heartbeats. A new
// relay sends nothing until the others must have noticed it, so the limit holds while relays come and go.

import type { ResolvedRate } from '../../core/destination-limits.js';

/** How long other relays may take to notice a new one: a heartbeat (5 seconds) and a second on top. */
export const newcomerMs = 6000;
/** Relays claim no more messages than they can send within this time. */
const soonMs = 1000;

/** One shard's part of a rate limit. The relays of different shards do not know of each other. */
export function rateOfShard(rate: ResolvedRate, shards: number): ResolvedRate {
  return { perSecond: rate.perSecond / shards, burst: Math.max(rate.burst / shards, 1) };
}

export class TokenBucket {
  readonly #rate: ResolvedRate;
  readonly #now: () => number;
  #relays: number;
  #tokens: number;
  /** Tokens have been added up to this time. */
  #filledMs: number;

  constructor(rate: ResolvedRate, relays = 1, now = () => performance.now()) {
    this.#rate = rate;
    this.#now = now;
    this.#relays = relays;
    this.#tokens = relays > 1 ? 0 : this.#burst;
    this.#filledMs = now() + (relays > 1 ? newcomerMs : 0);
  }

  /** How many relays share the limit, this one included. */
  share(relays: number): void {
    this.#fill();
    this.#relays = Math.max(relays, 1);
    this.#tokens = Math.min(this.#tokens, this.#burst);
  }

  /**
   * Messages that can be sent soon. A batch that is larger than that is sent as a whole, when there are enough
   * tokens.
   */
  get soon(): number {
    // a new relay: leave to others what it cannot send yet
    if (this.#filledMs - this.#now() > soonMs) return 0;
    return Math.max(Math.ceil(this.#perMs * soonMs), 1);
  }

  /** Takes a token for each message. A call larger than the burst makes the number of tokens negative. */
  take(messages: number): boolean {
    if (this.waitMs(messages) > 0) return false;
    this.#tokens -= messages;
    return true;
  }

  /** Milliseconds until this many messages may be sent. */
  waitMs(messages: number): number {
    this.#fill();
    const missing = Math.min(messages, this.#burst) - this.#tokens;
    // ignore rounding errors of fractions
    if (missing <= 1e-6) return 0;
    return missing / this.#perMs + Math.max(this.#filledMs - this.#now(), 0);
  }

  get #perMs(): number {
    return this.#rate.perSecond / 1000 / this.#relays;
  }

  get #burst(): number {
    return Math.max(this.#rate.burst / this.#relays, 1);
  }

  #fill(): void {
    const nowMs = this.#now();
    if (nowMs <= this.#filledMs) return;
    this.#tokens = Math.min(this.#tokens + (nowMs - this.#filledMs) * this.#perMs, this.#burst);
    this.#filledMs = nowMs;
  }
}
