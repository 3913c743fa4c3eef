// Due poller: polls for due deliveries on behalf of all idle destinations of a relay with one query, and wakes those
// that have work. It polls when a destination becomes idle, at the fallback poll, and on request. So hundreds of
// idle destinations cost no more queries than one.

import type { Database } from '../../database/connection.js';
import { nextDueMs } from '../../database/wake-up.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import type { Signal } from '../signal.js';

type IdleDestination = {
  readonly destinationId: number;
  readonly signal: Signal;
  readonly sinceMs: number;
  timer: NodeJS.Timeout | undefined;
};

export type DuePollerOptions = {
  database: Database;
  fallbackPollMs: number | null;
  /** False for a relay with a filter: a due delivery may not be for it. */
  maySilence: boolean;
  isListening: () => boolean;
  emit: Emit;
};

const heldPollMs = 50;
const unheardPollMs = 250;
const maxBackoffMs = 2000;
const longestTimerMs = 2_147_483_647;

export class DuePoller {
  readonly #options: DuePollerOptions;
  readonly #idle = new Set<IdleDestination>();
  #poll: NodeJS.Timeout | undefined;
  #soon = false;
  #looking = false;
  #again = false;
  #backoffMs = 0;

  constructor(options: DuePollerOptions) {
    this.#options = options;
  }

  /** Resolves when the signal is raised, from outside or by this poller because a delivery is due. */
  async wait(destinationId: number, signal: Signal): Promise<void> {
    const idle: IdleDestination = {
      destinationId,
      signal,
      sinceMs: performance.now(),
      timer: undefined,
    };
    this.#idle.add(idle);
    this.look();
    try {
      await signal.wait(null);
    } finally {
      this.#idle.delete(idle);
      clearTimeout(idle.timer);
      if (this.#idle.size === 0) clearTimeout(this.#poll);
    }
  }

  /** Polls at the end of this turn of the event loop, once for all destinations that become idle in it. */
  look(): void {
    if (this.#soon || this.#idle.size === 0) return;
    this.#soon = true;
    setImmediate(() => {
      this.#soon = false;
      void this.#look();
    });
  }

  async #look(): Promise<void> {
    if (this.#looking) {
      this.#again = true;
      return;
    }
    this.#looking = true;
    clearTimeout(this.#poll);
    try {
      do {
        this.#again = false;
        await this.#lookOnce();
      } while (this.#again);
      this.#backoffMs = 0;
    } catch (error) {
      this.#options.emit(troubleOf('look for work', error));
      this.#backoffMs = Math.min(Math.max(this.#backoffMs * 2, 50), maxBackoffMs);
    }
    this.#looking = false;
    const pollMs = this.#backoffMs > 0 ? this.#backoffMs : this.#pollMs();
    if (pollMs !== null && this.#idle.size > 0)
      this.#poll = setTimeout(() => void this.#look(), pollMs);
  }

  #pollMs(): number | null {
    const { fallbackPollMs, maySilence, isListening } = this.#options;
    if (fallbackPollMs !== null) return fallbackPollMs;
    if (!maySilence) return heldPollMs;
    // without a listener, the relay has nothing but the poll
    return isListening() ? null : unheardPollMs;
  }

  async #lookOnce(): Promise<void> {
    const asked = [...this.#idle];
    if (asked.length === 0) return;
    const due = await nextDueMs(this.#options.database);
    for (const idle of asked) {
      clearTimeout(idle.timer);
      const dueMs = due.get(idle.destinationId);
      if (dueMs !== undefined && this.#idle.has(idle)) this.#wake(idle, dueMs);
    }
  }

  #wake(idle: IdleDestination, dueMs: number): void {
    // a delivery that is due, but was not found by the last claim, is being claimed by another relay
    const { maySilence, fallbackPollMs } = this.#options;
    const heldMs = maySilence ? heldPollMs : (fallbackPollMs ?? heldPollMs);
    const restMs = idle.sinceMs + heldMs - performance.now();
    const waitMs = dueMs > 0 ? Math.max(dueMs, 1) : restMs;
    if (waitMs <= 0) idle.signal.raise();
    else idle.timer = setTimeout(() => idle.signal.raise(), Math.min(waitMs, longestTimerMs));
  }
}
