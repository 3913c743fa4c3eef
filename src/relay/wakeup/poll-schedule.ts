// Poll schedule: decides when one destination is claimed again. It has three states:
//
//   idle        producers notify; the due poller looks for work of all idle destinations. A little work is done in
//               this state, notification by notification, with the shortest delay.
//   active      there is much work: producers do not notify, and the queue is claimed every pollMs.
//   going idle  producers notify from now on. A producer whose transaction is still open may have seen "active" and
//               will not notify, so polling continues until no such transaction is left.

import { nextTransaction, idleIsSafe } from '../../database/wake-up.js';
import type { Database } from '../../database/connection.js';
import type { ListenerRegistry } from './listener-registry.js';
import type { DuePoller } from './due-poller.js';
import { Signal } from '../signal.js';

export type PollScheduleOptions = {
  database: Database;
  destinationId: number;
  pollMs: number;
  /** False for a relay with a filter: other relays need the notifications for messages that it does not take. */
  maySilence: boolean;
  listeners: ListenerRegistry;
  duePoller: DuePoller;
};

const activeForMs = 15_000;
const goingIdlePollMs = 20;
/** The load is the number of recent claims that found something, halved every half-life. */
const halfLifeMs = 500;
const activeAbove = 10;
const idleBelow = 2;
const mostLoad = 30;

export class PollSchedule {
  readonly #options: PollScheduleOptions;
  readonly #signal = new Signal();
  #state: 'idle' | 'active' | 'going idle' = 'idle';
  #idleSince = '0';
  /** What is registered for producers. When the destination becomes idle, it changes before the state does. */
  #silences = false;
  #load = 0;
  #loadAtMs = performance.now();

  constructor(options: PollScheduleOptions) {
    this.#options = options;
  }

  get active(): boolean {
    return this.#state === 'active';
  }

  /** There may be work: claim at once. */
  wake(): void {
    this.#signal.raise();
  }

  /** Must be called before each claim, so a wake-up during the claim is not missed. */
  beforeClaim(): void {
    this.#signal.reset();
  }

  found(count: number, full: boolean): void {
    if (count > 0) this.#load = Math.min(this.#currentLoad() + (full ? activeAbove : 1), mostLoad);
  }

  get destinationId(): number {
    return this.#options.destinationId;
  }

  /** For how long producers need not notify. */
  get activeMs(): number {
    return this.#silences && this.#options.maySilence ? activeForMs : 0;
  }

  /** Registers the present state with producers. */
  async register(): Promise<void> {
    await this.#options.listeners.register([this]);
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
        return this.#options.duePoller.wait(this.destinationId, this.#signal);
      case 'active':
        if (this.#currentLoad() < idleBelow) return this.#becomeIdle();
        return this.#signal.wait(this.#options.pollMs);
      case 'going idle':
        if (this.#currentLoad() > activeAbove) return this.#becomeActive();
        if (await idleIsSafe(this.#options.database, this.#idleSince)) {
          // one last claim follows: every producer that saw this relay active has committed by now
          this.#state = 'idle';
          return;
        }
        return this.#signal.wait(goingIdlePollMs);
    }
  }

  async #becomeActive(): Promise<void> {
    this.#state = 'active';
    this.#silences = true;
    await this.register();
  }

  async #becomeIdle(): Promise<void> {
    this.#silences = false;
    await this.register();
    this.#idleSince = await nextTransaction(this.#options.database);
    this.#state = 'going idle';
  }

  #currentLoad(): number {
    const nowMs = performance.now();
    this.#load *= 0.5 ** ((nowMs - this.#loadAtMs) / halfLifeMs);
    this.#loadAtMs = nowMs;
    return this.#load;
  }
}
