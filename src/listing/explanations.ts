// Explains why a message is not delivered yet: the database's answer, one for each destination.

import type { Database } from '../database/connection.js';

export type Explanation = {
  /** Null if no destination is concerned: the message is unrouted or unknown. */
  destination: string | null;
  status: string;
  /** Stable: `retrying`, `paused`, `behind`, … */
  reason: string;
  sentence: string;
  /** What to do about it; null if nothing is wrong or it resolves by itself. */
  remedy: string | null;
};

export async function explain(database: Database, messageId: string): Promise<Explanation[]> {
  return database.query<Explanation>(
    'explain',
    `SELECT destination, status, reason, sentence, remedy FROM ${database.schema}.explain($1)`,
    [messageId],
  );
}
