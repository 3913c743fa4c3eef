// Retry window: how long a call retries by itself, with growing pauses, for a bounded time and not past its abort.
// After that, the relay retries.

import { setTimeout as delay } from 'node:timers/promises';

const longestPauseMs = 1000;

export class RetryWindow {
  readonly #deadlineMs: number;
  readonly #signal: AbortSignal;
  #pauseMs = 50;

  constructor(ms: number, signal: AbortSignal) {
    this.#deadlineMs = performance.now() + ms;
    this.#signal = signal;
  }

  /** Waits for the next pause; returns false at once if there is no time left. */
  async wait(): Promise<boolean> {
    const pauseMs = this.#pauseMs;
    if (this.#signal.aborted || performance.now() + pauseMs > this.#deadlineMs) return false;
    this.#pauseMs = Math.min(2 * pauseMs, longestPauseMs);
    try {
      await delay(pauseMs, undefined, { signal: this.#signal });
      return true;
    } catch {
      return false;
    }
  }
}
