// Listener registry: tells producers for which destinations this relay listens and which ones it polls already. Flushes
// run one after the other, each with the present state, because on two connections the older one could arrive last.
// Calls during a flush join the next one, so hundreds of destinations cost a query or two.

import { registerListener } from '../../database/wake-up.js';
import type { Database } from '../../database/connection.js';

/** One destination; its state is read when the flush starts. */
export type ListenedDestination = { readonly destinationId: number; readonly activeMs: number };

const listeningMs = 30_000;

export class ListenerRegistry {
  readonly #database: Database;
  readonly #relayId: string;
  readonly #isListening: () => boolean;
  #destinations = new Set<ListenedDestination>();
  #next: Promise<void> | undefined;
  #last: Promise<void> = Promise.resolve();

  constructor(database: Database, relayId: string, isListening: () => boolean) {
    this.#database = database;
    this.#relayId = relayId;
    this.#isListening = isListening;
  }

  get listening(): boolean {
    return this.#isListening();
  }

  /** Registers the present state of these. Called again every few seconds, because registrations expire. */
  async register(destinations: Iterable<ListenedDestination>): Promise<void> {
    for (const destination of destinations) this.#destinations.add(destination);
    await this.#flushNext();
  }

  /** This relay does not serve the destination any more. */
  async withdraw({ destinationId }: ListenedDestination): Promise<void> {
    const withdraw = () => this.#store([destinationId], 0, 0);
    this.#last = this.#last.then(withdraw, withdraw);
    await this.#last;
  }

  #flushNext(): Promise<void> {
    if (this.#next === undefined) {
      const flush = () => this.#flush();
      this.#next = this.#last.then(flush, flush);
      this.#last = this.#next;
    }
    return this.#next;
  }

  async #flush(): Promise<void> {
    const destinations = [...this.#destinations];
    this.#destinations = new Set();
    this.#next = undefined;
    const byState = new Map<number, number[]>();
    for (const { activeMs, destinationId } of destinations)
      byState.set(activeMs, [...(byState.get(activeMs) ?? []), destinationId]);
    const validMs = this.#isListening() ? listeningMs : 0;
    for (const [activeMs, ids] of byState) await this.#store(ids, activeMs, validMs);
  }

  async #store(ids: readonly number[], activeMs: number, validMs: number): Promise<void> {
    await registerListener(this.#database, this.#relayId, ids, { activeMs, listeningMs: validMs });
  }
}
