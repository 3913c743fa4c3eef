// What this relay did since it last told the database, by destination.

import type { Database } from '../database/connection.js';
import { addStatistics, takeSample } from '../database/statistics.js';
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

  /** What could not be told is told the next time. */
  async tell(database: Database): Promise<void> {
    const counts = this.#counts;
    this.#counts = new Map();
    try {
      await addStatistics(database, counts);
    } catch (error) {
      for (const [destinationId, more] of counts) this.#add(destinationId, more);
      throw error;
    }
    // by itself: if it fails, what was told is not to be told again
    await takeSample(database);
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
