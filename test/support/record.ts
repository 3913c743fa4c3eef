// Attempts cannot be changed by anybody. Tests that need another past take the guard away for one transaction.

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
