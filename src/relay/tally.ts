// What this relay did since it last told the database, by destination.

import type { Counts } from '../database/statistics.js';
import type { RelayEvent } from '../telemetry/events.js';

export class Tally {
  #counts = new Map<number, Counts>();

  add(destinationId: number, { counts, died }: Extract<RelayEvent, { name: 'settled' }>): void {
    this.#add(destinationId, {
      delivered: counts.delivered,
      retried: counts.retry + counts.reject - died,
      died,
    });
  }

  /** What is to be told; if it cannot be, `putBack` it. */
  take(): ReadonlyMap<number, Counts> {
    const taken = this.#counts;
    this.#counts = new Map();
    return taken;
  }

  putBack(counts: ReadonlyMap<number, Counts>): void {
    for (const [destinationId, more] of counts) this.#add(destinationId, more);
  }

  #add(destinationId: number, more: Counts): void {
    if (more.delivered + more.retried + more.died === 0) return;
    const known = this.#counts.get(destinationId) ?? { delivered: 0, retried: 0, died: 0 };
    this.#counts.set(destinationId, {
      delivered: known.delivered + more.delivered,
      retried: known.retried + more.retried,
      died: known.died + more.died,
    });
  }
}
