// A relay that is too old for its schema. At its start the caller hears of it; one that runs while the schema is
// migrated past it stops by itself: whatever it goes on to do may be wrong, and nobody can tell it so.

import { refusalOr } from '../database/versions.js';
import { RelayTooOldError } from '../errors.js';
import type { Emit } from '../telemetry/events.js';

export type RefusalOptions = {
  relay: string;
  emit: Emit;
  /** It has begun to work. */
  isOpen: () => boolean;
  isStopping: () => boolean;
  stop: () => Promise<void>;
};

export class Refusal {
  readonly #options: RefusalOptions;
  #error: RelayTooOldError | undefined;

  constructor(options: RefusalOptions) {
    this.#options = options;
  }

  /** Set as soon as the schema has refused it while it ran. */
  get error(): RelayTooOldError | undefined {
    return this.#error;
  }

  throwIfRefused(): void {
    if (this.#error !== undefined) throw this.#error;
  }

  /** Takes a refusal; every other error, and one at the start, is for the caller. */
  take(thrown: unknown): void {
    const { relay, emit, isOpen, isStopping, stop } = this.#options;
    const error = refusalOr(thrown);
    if (!isOpen() || !(error instanceof RelayTooOldError)) throw error;
    if (isStopping()) return;
    this.#error = error;
    emit({ name: 'relay_refused', relay, error: error.message });
    // not awaited: the stop waits for the heartbeat that has brought this
    void stop().catch(() => {});
  }
}
