// When to look for work at one destination again. Three states, and the protocol between them:
//
//   asleep   producers ring; the lookout looks now and then, for all who sleep. A little work is done in this state,
//            ring by ring: that is the quickest answer, and a bell now and then costs producers nothing.
//   awake    there is much work: producers are told not to ring, and the queue is looked at every pollMs.
//   vigil    falling asleep: producers ring again from now on, but one whose transaction is still open may
//            have seen "awake" and will not; until no such transaction is left, the looking goes on.

import { nextTransaction, sleepIsSafe } from '../database/doorbells.js';
import type { Database } from '../database/connection.js';
import type { Doorbells } from './doorbells.js';
import type { Lookout } from './lookout.js';
import { Signal } from './signal.js';

export type SleeperOptions = {
  database: Database;
  destinationId: number;
  pollMs: number;
  /** False for a relay with a filter: it must not silence the bell for messages that it does not take. */
  maySilence: boolean;
  doorbells: Doorbells;
  lookout: Lookout;
};

const awakeMs = 15_000;
const vigilPollMs = 20;
/** Heat is the number of recent claims that found something, halved every half-life. */
const halfLifeMs = 500;
const awakeAbove = 10;
const asleepBelow = 2;
const hottest = 30;

export class Sleeper {
  readonly #options: SleeperOptions;
  readonly #signal = new Signal();
  #state: 'asleep' | 'awake' | 'vigil' = 'asleep';
  #asleepSince = '0';
  /** What producers are told; it changes before the state does when falling asleep. */
  #silences = false;
  #heat = 0;
  #heatAtMs = performance.now();

  constructor(options: SleeperOptions) {
    this.#options = options;
  }

  get awake(): boolean {
    return this.#state === 'awake';
  }

  /** There may be work: look at once. */
  nudge(): void {
    this.#signal.raise();
  }

  /** To be called before each look, so that a nudge during it is not missed. */
  aboutToLook(): void {
    this.#signal.reset();
  }

  found(count: number, full: boolean): void {
    if (count > 0) this.#heat = Math.min(this.#currentHeat() + (full ? awakeAbove : 1), hottest);
  }

  get destinationId(): number {
    return this.#options.destinationId;
  }

  /** How long producers may count on a look without ringing. */
  get awakeMs(): number {
    return this.#silences && this.#options.maySilence ? awakeMs : 0;
  }

  /** Says whether producers may ring, as things stand. */
  async register(): Promise<void> {
    await this.#options.doorbells.register([this]);
  }

  /** No look is possible for now: others must be able to hear producers meanwhile. */
  async stopSilencing(): Promise<void> {
    if (this.#state === 'awake') await this.#fallAsleep();
  }

  /** Waits until the next look is worth it. */
  async wait(): Promise<void> {
    switch (this.#state) {
      case 'asleep':
        if (this.#currentHeat() > awakeAbove) return this.#awaken();
        return this.#options.lookout.sleep(this.destinationId, this.#signal);
      case 'awake':
        if (this.#currentHeat() < asleepBelow) return this.#fallAsleep();
        return this.#signal.wait(this.#options.pollMs);
      case 'vigil':
        if (this.#currentHeat() > awakeAbove) return this.#awaken();
        if (await sleepIsSafe(this.#options.database, this.#asleepSince)) {
          // one last look follows: whoever saw this relay awake has committed by now
          this.#state = 'asleep';
          return;
        }
        return this.#signal.wait(vigilPollMs);
    }
  }

  async #awaken(): Promise<void> {
    this.#state = 'awake';
    this.#silences = true;
    await this.register();
  }

  async #fallAsleep(): Promise<void> {
    this.#silences = false;
    await this.register();
    this.#asleepSince = await nextTransaction(this.#options.database);
    this.#state = 'vigil';
  }

  #currentHeat(): number {
    const nowMs = performance.now();
    this.#heat *= 0.5 ** ((nowMs - this.#heatAtMs) / halfLifeMs);
    this.#heatAtMs = nowMs;
    return this.#heat;
  }
}
