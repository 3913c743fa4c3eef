// Reopened destinations: what a relay that wakes uses instead of its destinations. Each is opened in the background, so
// one that cannot be opened, such as a broker that is down, does not hold up the others. Its deliveries wait for the
// opening; if that fails, they fail too, and the next try opens it again.

import type { Destination } from '../../destinations/destination.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';

export function reopened(
  destinations: Record<string, Destination>,
  emit: Emit,
): Record<string, Destination> {
  return Object.fromEntries(
    Object.entries(destinations).map(([name, destination]) => [
      name,
      destination.open === undefined ? destination : reopenedOne(name, destination, emit),
    ]),
  );
}

function reopenedOne(name: string, destination: Destination, emit: Emit): Destination {
  const opening = new Opening(name, destination, emit);
  const common = {
    ...destination,
    open: () => opening.begin(),
    close: () => opening.end(),
  };
  if ('deliverBatch' in destination)
    return {
      ...common,
      batchSize: destination.batchSize,
      async deliverBatch(messages, context) {
        await opening.whenOpen();
        return destination.deliverBatch(messages, context);
      },
    };
  return {
    ...common,
    deliver: (message, context) =>
      opening.isOpen
        ? destination.deliver(message, context)
        : opening.whenOpen().then(() => destination.deliver(message, context)),
  };
}

class Opening {
  readonly #name: string;
  readonly #destination: Destination;
  readonly #emit: Emit;
  /** While it is being opened. */
  #opening: Promise<void> | undefined;
  #isWanted = false;
  isOpen = false;

  constructor(name: string, destination: Destination, emit: Emit) {
    this.#name = name;
    this.#destination = destination;
    this.#emit = emit;
  }

  begin(): void {
    this.#isWanted = true;
    // reported in #open
    void this.whenOpen().catch(() => undefined);
  }

  /** Opens it, unless it is open or being opened. */
  async whenOpen(): Promise<void> {
    if (this.isOpen) return;
    this.#opening ??= this.#open().finally(() => (this.#opening = undefined));
    await this.#opening;
  }

  async end(): Promise<void> {
    this.#isWanted = false;
    this.isOpen = false;
    await this.#destination.close?.();
  }

  async #open(): Promise<void> {
    try {
      await this.#destination.open?.();
    } catch (error) {
      this.#emit(troubleOf(`open ${this.#name}`, error));
      throw error;
    }
    this.isOpen = this.#isWanted;
    // the relay has fallen asleep meanwhile
    if (!this.#isWanted) await this.#destination.close?.();
  }
}
