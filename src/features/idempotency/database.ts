// SQL calls of idempotency keys, in the transaction of the request: sql/functions/idempotency/idempotency.sql.

import type { Database } from '../../database/connection.js';

/** Returns the answer that was kept for the key, or null if the key is new. Waits for a request with the same key. */
export async function beginRequest(
  database: Database,
  owner: string,
  key: Buffer,
): Promise<string | null> {
  const [row] = await database.query<{ answer: string | null }>(
    'begin request',
    `SELECT ${database.schema}.begin_request($1, $2) AS answer`,
    [owner, key],
  );
  return row?.answer ?? null;
}

export async function keepAnswer(
  database: Database,
  owner: string,
  key: Buffer,
  sealed: string,
): Promise<void> {
  await database.query('keep answer', `SELECT ${database.schema}.keep_answer($1, $2, $3)`, [
    owner,
    key,
    sealed,
  ]);
}
