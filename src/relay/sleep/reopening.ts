// Reopening destinations: what a relay that wakes uses instead of its destinations. Each is opened in the background, so
// one that cannot be opened, such as a broker that is down, does not hold up the others. Its deliveries wait for the
// opening; if that fails, they fail too, and the next try opens it again.

import type { DeliveryContext, Destination } from '../../destinations/destination.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';

export function reopening(
  destinations: Record<string, Destination>,
  emit: Emit,
): Record<string, Destination> {
  return Object.fromEntries(
    Object.entries(destinations).map(([name, destination]) => [
      name,
      destination.open === undefined ? destination : reopeningOne(name, destination, emit),
    ]),
  );
}

function reopeningOne(name: string, destination: Destination, emit: Emit): Destination {
  const opening = new Opening(name, destination, emit);
  const { kind, settings, definition } = destination;
  // member by member: a destination can be an instance of a class, and a copy of it would lack what it inherits
  const common = {
    kind,
    settings,
    ...(definition !== undefined && { definition }),
    ...(destination.health && { health: destination.health.bind(destination) }),
    ...(destination.render && { render: destination.render.bind(destination) }),
    ...(destination.request && { request: destination.request.bind(destination) }),
    open: () => opening.begin(),
    close: () => opening.end(),
  };
  if ('deliverBatch' in destination)
    return {
      ...common,
      batchSize: destination.batchSize,
      ...(destination.keepsOrder !== undefined && { keepsOrder: destination.keepsOrder }),
      async deliverBatch(messages, context) {
        await opening.whenOpenFor(context);
        return destination.deliverBatch(messages, context);
      },
    };
  return {
    ...common,
    deliver: (message, context) =>
      opening.isOpen
        ? destination.deliver(message, context)
        : opening.whenOpenFor(context).then(() => destination.deliver(message, context)),
  };
}

class Opening {
  readonly #name: string;
  readonly #destination: Destination;
  readonly #emit: Emit;
  /** While it is being opened. */
  #opening: Promise<void> | undefined;
  #isWanted = false;
  /** How often it was closed: what was being opened then may be closed, too. */
  #ends = 0;
  isOpen = false;

  constructor(name: string, destination: Destination, emit: Emit) {
    this.#name = name;
    this.#destination = destination;
    this.#emit = emit;
  }

  begin(): void {
    this.#isWanted = true;
    // reported in #open
    void this.#whenOpen().catch(() => undefined);
  }

  /** For a delivery: one that has timed out meanwhile is not sent any more. */
  async whenOpenFor({ signal }: DeliveryContext): Promise<void> {
    await this.#whenOpen();
    signal.throwIfAborted();
  }

  async end(): Promise<void> {
    this.#isWanted = false;
    this.isOpen = false;
    this.#ends += 1;
    await this.#destination.close?.();
  }

  /** Opens it, unless it is open or being opened. */
  async #whenOpen(): Promise<void> {
    while (!this.isOpen) {
      if (!this.#isWanted) throw new Error(`${this.#name} is closed, because the relay sleeps`);
      this.#opening ??= this.#open().finally(() => (this.#opening = undefined));
      await this.#opening;
    }
  }

  async #open(): Promise<void> {
    const ends = this.#ends;
    try {
      await this.#destination.open?.();
    } catch (error) {
      this.#emit(troubleOf(`open ${this.#name}`, error));
      throw error;
    }
    if (ends === this.#ends) this.isOpen = true;
    // the relay has fallen asleep meanwhile
    else await this.#destination.close?.();
  }
}
