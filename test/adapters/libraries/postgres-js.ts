import postgres from 'postgres';

import { library } from '../library.js';

// Column names are rewritten, as in many applications.
export default library<postgres.TransactionSql>(['postgres'], (url) => {
  const sql = postgres(url, { transform: postgres.camel, prepare: false });
  return Promise.resolve({
    outside: sql,
    transaction: async <T>(work: (tx: postgres.TransactionSql) => Promise<T>) =>
      (await sql.begin(work)) as T,
    nested: async <T>(
      tx: postgres.TransactionSql,
      work: (inner: postgres.TransactionSql) => Promise<T>,
    ) => (await tx.savepoint(work)) as T,
    insert: (tx, name) => tx`INSERT INTO effects VALUES (${name})`,
    // a query after the end of its transaction can keep its connection from closing
    close: () => sql.end({ timeout: 5 }),
  });
});
