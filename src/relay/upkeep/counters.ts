// Counters of this relay by destination: collects outcomes and adds them to the statistics in the database.

import type { Database } from '../../database/connection.js';
import { addStatistics } from '../../listing/statistics.js';
import type { Counts } from '../../listing/statistics.js';
import type { RelayEvent } from '../../telemetry/events.js';

export class Counters {
  #counts = new Map<number, Counts>();

  add(destinationId: number, { counts, died }: Extract<RelayEvent, { name: 'settled' }>): void {
    this.#add(destinationId, {
      delivered: counts.delivered,
      retried: counts.retry + counts.reject - died,
      died,
      expired: counts.discard,
    });
  }

  /** Writes the counts to the database; after an error they are kept for the next time. */
  async tell(database: Database): Promise<void> {
    const counts = this.#counts;
    this.#counts = new Map();
    try {
      await addStatistics(database, counts);
    } catch (error) {
      for (const [destinationId, more] of counts) this.#add(destinationId, more);
      throw error;
    }
  }

  #add(destinationId: number, more: Counts): void {
    if (more.delivered + more.retried + more.died + more.expired === 0) return;
    const known = this.#counts.get(destinationId) ?? {
      delivered: 0,
      retried: 0,
      died: 0,
      expired: 0,
    };
    this.#counts.set(destinationId, {
      delivered: known.delivered + more.delivered,
      retried: known.retried + more.retried,
      died: known.died + more.died,
      expired: known.expired + more.expired,
    });
  }
}
