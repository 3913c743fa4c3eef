// When to look for work at one destination again. Three states, and the protocol between them:
//
//   asleep   producers ring; the fallback poll looks now and then. A little work is done in this state,
//            ring by ring: that is the quickest answer, and a bell now and then costs producers nothing.
//   awake    there is much work: producers are told not to ring, and the queue is looked at every pollMs.
//   vigil    falling asleep: producers ring again from now on, but one whose transaction is still open may
//            have seen "awake" and will not; until no such transaction is left, the looking goes on.

import {
  nextDueMs,
  nextTransaction,
  registerDoorbell,
  sleepIsSafe,
} from '../database/doorbells.js';
import type { Database } from '../database/connection.js';
import { Signal } from './signal.js';

export type SleeperOptions = {
  database: Database;
  relayId: string;
  destinationId: number;
  pollMs: number;
  fallbackPollMs: number | null;
  /** False for a relay with a filter: it must not silence the bell for messages that it does not take. */
  maySilence: boolean;
  isListening: () => boolean;
};

export const awakeMs = 15_000;
export const listeningMs = 30_000;

const vigilPollMs = 20;
const heldPollMs = 50;
const deafPollMs = 250;
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
  #registering: Promise<void> = Promise.resolve();
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

  /**
   * Says whether producers may ring, as things stand. Also to be called now and then, to stay believed. One
   * call after the other: on two connections the older word could arrive last.
   */
  async register(): Promise<void> {
    this.#registering = this.#registering.then(
      () => this.#register(),
      () => this.#register(),
    );
    await this.#registering;
  }

  async #register(): Promise<void> {
    const { database, relayId, destinationId, maySilence, isListening } = this.#options;
    await registerDoorbell(database, relayId, [destinationId], {
      awakeMs: this.#silences && maySilence ? awakeMs : 0,
      listeningMs: isListening() ? listeningMs : 0,
    });
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
        return this.#sleep();
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

  async #sleep(): Promise<void> {
    const { database, destinationId, maySilence, isListening } = this.#options;
    // deaf, the relay has nothing but the poll
    const fallbackPollMs = isListening()
      ? this.#options.fallbackPollMs
      : (this.#options.fallbackPollMs ?? deafPollMs);
    // with a filter, the next delivery that is due may be somebody else's for ever
    if (!maySilence) return this.#signal.wait(fallbackPollMs ?? heldPollMs);
    const dueMs = await nextDueMs(database, destinationId);
    const limits = [fallbackPollMs, dueMs].filter((ms) => ms !== null);
    // what is due and was not found is being claimed by another relay at this moment
    await this.#signal.wait(
      limits.length === 0
        ? null
        : Math.max(Math.min(...limits), dueMs !== null && dueMs <= 0 ? heldPollMs : 1),
    );
  }

  #currentHeat(): number {
    const nowMs = performance.now();
    this.#heat *= 0.5 ** ((nowMs - this.#heatAtMs) / halfLifeMs);
    this.#heatAtMs = nowMs;
    return this.#heat;
  }
}
