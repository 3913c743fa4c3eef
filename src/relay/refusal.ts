// Refusal: what happens when the schema is too new for a relay. At the start, the caller gets the error. A relay
// that is running while the schema is migrated past it stops by itself, because its statements may no longer be
// right.

import { refusalOr } from '../database/versions.js';
import { RelayTooOldError } from '../core/errors.js';
import type { Emit } from '../telemetry/events.js';

export type RefusalOptions = {
  relay: string;
  emit: Emit;
  /** The relay is set up and works. */
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

  /** Set when the schema has refused the running relay. */
  get error(): RelayTooOldError | undefined {
    return this.#error;
  }

  throwIfRefused(): void {
    if (this.#error !== undefined) throw this.#error;
  }

  /** Stops the relay if this is a refusal while it runs. Throws every other error, and a refusal at the start. */
  take(thrown: unknown): void {
    const { relay, emit, isOpen, isStopping, stop } = this.#options;
    const error = refusalOr(thrown);
    if (!isOpen() || !(error instanceof RelayTooOldError)) throw error;
    if (isStopping()) return;
    this.#error = error;
    emit({ name: 'relay_refused', relay, error: error.message });
    // not awaited: the stop waits for the heartbeat that reported this
    void stop().catch(() => {});
  }
}
