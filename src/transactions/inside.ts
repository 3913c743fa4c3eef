// Runs SQL only if the handle is inside a transaction. The server is asked which transaction it is in, and the SQL goes
// along with the answer: outside of one, each statement has a transaction of its own, and the answer is that of
// another. Any driver, ORM or pooler passes that on. It stays true for a handle that was kept beyond its transaction,
// and for a transaction that ends between the two: asking alone could be overtaken by a COMMIT or a ROLLBACK.

import type { Transaction } from './transaction.js';

/** The server process and when its transaction began, in microseconds. */
const mark = `concat_ws(' ', pg_backend_pid(), extract(epoch FROM now()))`;

/** No rows: nothing was run. The condition has no columns, so the server looks at it once, before anything else. */
export async function queryInside(
  query: Transaction['query'],
  sql: string,
  parameters: readonly unknown[],
): ReturnType<Transaction['query']> {
  const [asked] = await query(`SELECT ${mark} AS mark`, []);
  const sameTransaction = `SELECT run.* FROM (${sql}) AS run WHERE ${mark} = $${parameters.length + 1}::text`;
  return query(sameTransaction, [...parameters, asked?.['mark'] ?? '']);
}
