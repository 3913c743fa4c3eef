// Drain limit of one destination: how many messages a drain may still claim. A drain does not wait for a destination
// that fails: when its circuit breaker opens, the drain is over.

import type { CallGate } from './call-gate.js';

export class DrainLimit {
  readonly #calls: CallGate;
  #left: number;

  constructor(maxMessages: number, calls: CallGate) {
    this.#left = maxMessages;
    this.#calls = calls;
  }

  get left(): number {
    return this.#left;
  }

  /** The drain should claim no more. */
  get isOver(): boolean {
    return this.#left <= 0 || this.isFailing;
  }

  get isFailing(): boolean {
    return this.#calls.isClosed;
  }

  claimed(count: number): void {
    this.#left -= count;
  }
}
