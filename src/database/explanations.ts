// Why a message is not delivered yet: the database's own answer, one for each destination.

import type { Database } from './connection.js';

export type Explanation = {
  /** Null where no destination is concerned: no route wanted it, or nobody knows it. */
  destination: string | null;
  status: string;
  /** Stable: `retrying`, `paused`, `behind`, … */
  reason: string;
  sentence: string;
  /** What to do about it; null if time alone will mend it, or nothing is wrong. */
  remedy: string | null;
};

export async function explain(database: Database, messageId: string): Promise<Explanation[]> {
  return database.query<Explanation>(
    'explain',
    `SELECT destination, status, reason, sentence, remedy FROM ${database.schema}.explain($1)`,
    [messageId],
  );
}
