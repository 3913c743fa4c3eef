// Days of a message list, newest first. Messages and attempts have a partition for each day, and a query over all of
// them takes longer to plan than to run. So a list reads a few days at a time, and more where it finds nothing. The
// catalogs say which days have data, so no clock is needed and empty days ahead cost nothing.

import type { Database } from '../database/connection.js';
import { firstId, lastId } from './message-ranges.js';
import type { MessageFilter } from './message-ranges.js';

/** From the first id (inclusive) to the last (exclusive). */
export type DaySpan = { from: string; to: string; days: number };

const dayMs = 86_400_000;

/** The lowest id that a message made at this time can have. */
function idAt(timeMs: number): string {
  const hex = Math.max(0, Math.floor(timeMs)).toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

export class Days {
  /** When each day begins, the newest first. */
  readonly #beginnings: readonly number[];
  readonly #from: string;
  readonly #to: string;

  constructor(beginnings: readonly number[], { from, to }: Pick<MessageFilter, 'from' | 'to'>) {
    this.#beginnings = beginnings;
    this.#from = from === undefined ? firstId : idAt(from.getTime());
    this.#to = to === undefined ? lastId : idAt(to.getTime());
  }

  static async read(
    database: Database,
    table: 'messages' | 'attempts',
    filter: MessageFilter,
  ): Promise<Days> {
    const rows = await database.query<{ beginning: number }>(
      'list days',
      `SELECT (extract(epoch FROM b.day::timestamp AT TIME ZONE 'UTC') * 1000)::float8 AS beginning
         FROM ${database.schema}.partition_bounds($1::regclass) b WHERE pg_relation_size(b.partition) > 0 ORDER BY b.day DESC`,
      [`${database.schema}.${table}`],
    );
    return new Days(
      rows.map(({ beginning }) => beginning),
      filter,
    );
  }

  /** The span before this id, of at most this many days; null if there is none. */
  before(id: string, days: number): DaySpan | null {
    const [newest = 0] = this.#beginnings;
    const to = [id, this.#to, idAt(newest + dayMs)].toSorted()[0] ?? id;
    const beginnings = this.#beginnings.filter(
      (beginning) => idAt(beginning) < to && idAt(beginning + dayMs) > this.#from,
    );
    const some = beginnings.slice(0, days);
    const [last] = some.slice(-1);
    if (last === undefined || to <= this.#from) return null;
    const beginning = idAt(last);
    return {
      from: beginning > this.#from ? beginning : this.#from,
      to,
      days: some.length,
    };
  }
}
