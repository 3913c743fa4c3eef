// A token bucket: so many messages in a second, and some at once after a pause. The limit is for all relays
// together; each takes an equal share by the number of those that live, which it learns from its heartbeats. A
// newcomer sends nothing until the others must have learned of it: so the limit holds while relays come and go.

import type { ResolvedRate } from '../model/rails.js';

/** How long others may take to notice a newcomer: a heartbeat, and something for its way. */
export const newcomerMs = 6000;
/** No more is claimed than can be sent within this time. */
const soonMs = 1000;

/** What one shard may use of a limit that is for all of them: their relays do not know of each other. */
export function rateOfShard(rate: ResolvedRate, shards: number): ResolvedRate {
  return { perSecond: rate.perSecond / shards, burst: Math.max(rate.burst / shards, 1) };
}

export class TokenBucket {
  readonly #rate: ResolvedRate;
  readonly #now: () => number;
  #relays: number;
  #tokens: number;
  /** Up to when tokens have been added. */
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

  /** How many can be sent soon: a batch that is larger than that goes as a whole, when it is its turn. */
  get soon(): number {
    // as a newcomer: what it cannot send is for others to take
    if (this.#filledMs - this.#now() > soonMs) return 0;
    return Math.max(Math.ceil(this.#perMs * soonMs), 1);
  }

  /** Takes a token for each message. A call that is larger than the burst leaves a debt. */
  take(messages: number): boolean {
    if (this.waitMs(messages) > 0) return false;
    this.#tokens -= messages;
    return true;
  }

  /** How long until so many messages may go. */
  waitMs(messages: number): number {
    this.#fill();
    const missing = Math.min(messages, this.#burst) - this.#tokens;
    // what is left of a token by the imprecision of fractions is none
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
