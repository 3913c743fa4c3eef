// Rewrites attempts, which no role may change. Tests that need another past disable the guard for one transaction.

import type { TestDatabase } from './postgres.js';

export async function rewriteAttempts(
  db: TestDatabase,
  sql: string,
  values: unknown[] = [],
): Promise<void> {
  await db.inTransaction(async (client) => {
    await client.query(`ALTER TABLE ${db.quoted}.attempts DISABLE TRIGGER append_only`);
    await client.query(sql, values);
    await client.query(`ALTER TABLE ${db.quoted}.attempts ENABLE ALWAYS TRIGGER append_only`);
  });
}
