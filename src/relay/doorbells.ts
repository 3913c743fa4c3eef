// What a relay tells producers about all its destinations: who listens, who is awake. One flush after the other,
// each with what is true when it starts: on two connections the older word could arrive last. Whoever speaks
// meanwhile joins the next flush, so that hundreds of destinations cost a query or two.

import { registerDoorbell } from '../database/doorbells.js';
import type { Database } from '../database/connection.js';

/** One destination's word; it is asked for when the flush starts. */
export type Speaker = { readonly destinationId: number; readonly awakeMs: number };

const listeningMs = 30_000;

export class Doorbells {
  readonly #database: Database;
  readonly #relayId: string;
  readonly #isListening: () => boolean;
  #speakers = new Set<Speaker>();
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

  /** Says whether producers may ring for these, as things stand. Also to be called now and then, to stay believed. */
  async register(speakers: Iterable<Speaker>): Promise<void> {
    for (const speaker of speakers) this.#speakers.add(speaker);
    await this.#flushNext();
  }

  /** Nobody here serves this destination any more. */
  async withdraw({ destinationId }: Speaker): Promise<void> {
    const withdraw = () => this.#say([destinationId], 0, 0);
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
    const speakers = [...this.#speakers];
    this.#speakers = new Set();
    this.#next = undefined;
    const words = new Map<number, number[]>();
    for (const { awakeMs, destinationId } of speakers)
      words.set(awakeMs, [...(words.get(awakeMs) ?? []), destinationId]);
    const validMs = this.#isListening() ? listeningMs : 0;
    for (const [awakeMs, ids] of words) await this.#say(ids, awakeMs, validMs);
  }

  async #say(ids: readonly number[], awakeMs: number, validMs: number): Promise<void> {
    await registerDoorbell(this.#database, this.#relayId, ids, { awakeMs, listeningMs: validMs });
  }
}
