// Watches over the sleeping destinations of a relay, all of them with one query: when is the next of their
// deliveries due? Those that are due are woken. It looks when one falls asleep, at the fallback poll, and when it is
// told to; so a relay with hundreds of quiet destinations asks as often as one with a single one.

import type { Database } from '../database/connection.js';
import { nextDueMs } from '../database/doorbells.js';
import { errorText } from '../errors.js';
import type { Emit } from '../telemetry/events.js';
import type { Signal } from './signal.js';

type Sleeping = {
  readonly destinationId: number;
  readonly signal: Signal;
  readonly sinceMs: number;
  timer: NodeJS.Timeout | undefined;
};

export type LookoutOptions = {
  database: Database;
  fallbackPollMs: number | null;
  /** False for a relay with a filter: what is due may be somebody else's for ever. */
  maySilence: boolean;
  isListening: () => boolean;
  emit: Emit;
};

const heldPollMs = 50;
const deafPollMs = 250;
const maxBackoffMs = 2000;
const longestTimerMs = 2_147_483_647;

export class Lookout {
  readonly #options: LookoutOptions;
  readonly #asleep = new Set<Sleeping>();
  #poll: NodeJS.Timeout | undefined;
  #soon = false;
  #looking = false;
  #again = false;
  #backoffMs = 0;

  constructor(options: LookoutOptions) {
    this.#options = options;
  }

  /** Resolves when the signal is raised: by somebody else, or from here because something is due. */
  async sleep(destinationId: number, signal: Signal): Promise<void> {
    const sleeping: Sleeping = {
      destinationId,
      signal,
      sinceMs: performance.now(),
      timer: undefined,
    };
    this.#asleep.add(sleeping);
    this.look();
    try {
      await signal.wait(null);
    } finally {
      this.#asleep.delete(sleeping);
      clearTimeout(sleeping.timer);
      if (this.#asleep.size === 0) clearTimeout(this.#poll);
    }
  }

  /** Looks as soon as this turn is over, once for all who fall asleep in it. */
  look(): void {
    if (this.#soon || this.#asleep.size === 0) return;
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
      this.#options.emit({ name: 'trouble', what: 'look for work', error: errorText(error) });
      this.#backoffMs = Math.min(Math.max(this.#backoffMs * 2, 50), maxBackoffMs);
    }
    this.#looking = false;
    const pollMs = this.#backoffMs > 0 ? this.#backoffMs : this.#pollMs();
    if (pollMs !== null && this.#asleep.size > 0)
      this.#poll = setTimeout(() => void this.#look(), pollMs);
  }

  #pollMs(): number | null {
    const { fallbackPollMs, maySilence, isListening } = this.#options;
    if (fallbackPollMs !== null) return fallbackPollMs;
    if (!maySilence) return heldPollMs;
    // deaf, the relay has nothing but the poll
    return isListening() ? null : deafPollMs;
  }

  async #lookOnce(): Promise<void> {
    const asked = [...this.#asleep];
    if (asked.length === 0) return;
    const due = await nextDueMs(this.#options.database);
    for (const sleeping of asked) {
      clearTimeout(sleeping.timer);
      const dueMs = due.get(sleeping.destinationId);
      if (dueMs !== undefined && this.#asleep.has(sleeping)) this.#wake(sleeping, dueMs);
    }
  }

  #wake(sleeping: Sleeping, dueMs: number): void {
    // what is due and was not found just now is being claimed by another relay at this moment
    const { maySilence, fallbackPollMs } = this.#options;
    const heldMs = maySilence ? heldPollMs : (fallbackPollMs ?? heldPollMs);
    const restMs = sleeping.sinceMs + heldMs - performance.now();
    const waitMs = dueMs > 0 ? Math.max(dueMs, 1) : restMs;
    if (waitMs <= 0) sleeping.signal.raise();
    else
      sleeping.timer = setTimeout(() => sleeping.signal.raise(), Math.min(waitMs, longestTimerMs));
  }
}
