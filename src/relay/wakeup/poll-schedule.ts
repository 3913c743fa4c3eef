// Poll schedule: decides when one destination is claimed again. It has three states:
//
//   idle        producers notify; the due poller looks for work of all idle destinations. A little work is done in
//               this state, notification by notification, with the shortest delay.
//   active      there is much work: producers do not notify, and the queue is claimed every few milliseconds.
//   going idle  producers notify from now on. A producer whose transaction is still open may have seen "active" and
//               will not notify, so polling continues until no such transaction is left.

import { nextTransaction, idleIsSafe } from '../../database/wake-up.js';
import { Signal } from '../signal.js';
import type { WakeUp, WakeableDestination } from './wake-up.js';

const activeForMs = 15_000;
const goingIdlePollMs = 20;
/** The load is the number of recent claims that found something, halved every half-life. */
const halfLifeMs = 500;
const activeAbove = 10;
const idleBelow = 2;
const mostLoad = 30;
/** The rest between two claims while active: as long as a claim takes, so a busy server is asked less often. */
const shortestRestMs = 2;
const longestRestMs = 5;

export class PollSchedule implements WakeableDestination {
  readonly destinationId: number;
  readonly isEndpoint: boolean;
  readonly #wakeUp: WakeUp;
  readonly #signal = new Signal();
  #state: 'idle' | 'active' | 'going idle' = 'idle';
  #idleSince = '0';
  /** What is registered for producers. When the destination becomes idle, it changes before the state does. */
  #silences = false;
  #load = 0;
  #loadAtMs = performance.now();
  /** What a claim takes, on average over the last ones. */
  #claimMs = shortestRestMs;
  #idleSinceMs: number | undefined;

  constructor(destinationId: number, wakeUp: WakeUp, isEndpoint = false) {
    this.destinationId = destinationId;
    this.isEndpoint = isEndpoint;
    this.#wakeUp = wakeUp;
    wakeUp.join(this);
  }

  get active(): boolean {
    return this.#state === 'active';
  }

  /** Since when it waits for work, on the clock of performance.now(); undefined while there is or may be some. */
  get idleSinceMs(): number | undefined {
    return this.#signal.raised ? undefined : this.#idleSinceMs;
  }

  /** There may be work: claim at once. */
  wake(): void {
    this.#signal.raise();
  }

  /** Must be called before each claim, so a wake-up during the claim is not missed. */
  beforeClaim(): void {
    this.#signal.reset();
  }

  /** A claim has found so many messages. `full`: there were as many as it may take. */
  found(count: number, full: boolean, claimMs: number): void {
    this.#claimMs += (claimMs - this.#claimMs) / 8;
    if (count > 0) this.#load = Math.min(this.#currentLoad() + (full ? activeAbove : 1), mostLoad);
  }

  /** For how long producers need not notify. */
  get activeMs(): number {
    return this.#silences && this.#wakeUp.maySilence ? activeForMs : 0;
  }

  /** No claim is possible for now: producers must be able to notify other relays. */
  async stopPolling(): Promise<void> {
    if (this.#state === 'active') await this.#becomeIdle();
  }

  /** Waits until the next claim is worth it. */
  async wait(): Promise<void> {
    switch (this.#state) {
      case 'idle':
        if (this.#currentLoad() > activeAbove) return this.#becomeActive();
        return this.#whenDue();
      case 'active':
        if (this.#currentLoad() < idleBelow) return this.#becomeIdle();
        return this.#signal.wait(this.#restMs);
      case 'going idle':
        if (this.#currentLoad() > activeAbove) return this.#becomeActive();
        if (await idleIsSafe(this.#wakeUp.database, this.#idleSince)) {
          // one last claim follows: every producer that saw this relay active has committed by now
          this.#state = 'idle';
          return;
        }
        return this.#signal.wait(goingIdlePollMs);
    }
  }

  async #whenDue(): Promise<void> {
    this.#idleSinceMs = performance.now();
    try {
      await this.#wakeUp.whenDue(this, this.#signal);
    } finally {
      this.#idleSinceMs = undefined;
    }
  }

  get #restMs(): number {
    const { pollMs } = this.#wakeUp;
    return pollMs ?? Math.min(Math.max(Math.round(this.#claimMs), shortestRestMs), longestRestMs);
  }

  async #becomeActive(): Promise<void> {
    this.#state = 'active';
    this.#silences = true;
    await this.#wakeUp.register(this);
  }

  async #becomeIdle(): Promise<void> {
    this.#silences = false;
    await this.#wakeUp.register(this);
    this.#idleSince = await nextTransaction(this.#wakeUp.database);
    this.#state = 'going idle';
  }

  #currentLoad(): number {
    const nowMs = performance.now();
    this.#load *= 0.5 ** ((nowMs - this.#loadAtMs) / halfLifeMs);
    this.#loadAtMs = nowMs;
    return this.#load;
  }
}
