// Runs SQL only inside a transaction. A first query reads which transaction the server is in, and the SQL runs only if
// it is still the same one: outside a transaction, each statement has its own. This works with any driver, ORM or
// pooler. It also detects a handle that was kept beyond its transaction, and a COMMIT or ROLLBACK between the two
// queries.

import type { Transaction } from './transaction.js';

/** The server process and the start of its transaction, in microseconds. */
const mark = `concat_ws(' ', pg_backend_pid(), extract(epoch FROM now()))`;

/**
 * No rows mean that nothing ran. The condition uses no columns, so the server evaluates it once, before anything else.
 */
export async function queryInside(
  query: Transaction['query'],
  sql: string,
  parameters: readonly unknown[],
): ReturnType<Transaction['query']> {
  const [asked] = await query(`SELECT ${mark} AS mark`, []);
  const sameTransaction = `SELECT run.* FROM (${sql}) AS run WHERE ${mark} = $${parameters.length + 1}::text`;
  return query(sameTransaction, [...parameters, asked?.['mark'] ?? '']);
}
