import { drizzle as onNodePostgres } from 'drizzle-orm/node-postgres';
import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import { pgTable, text } from 'drizzle-orm/pg-core';
import { drizzle as onPostgresJs } from 'drizzle-orm/postgres-js';
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import pg from 'pg';
import postgres from 'postgres';

import { library } from '../library.js';

const effects = pgTable('effects', { name: text().primaryKey() });

type NodePgTransaction = Parameters<Parameters<NodePgDatabase['transaction']>[0]>[0];
type PostgresJsTransaction = Parameters<Parameters<PostgresJsDatabase['transaction']>[0]>[0];

export const drizzleOnNodePostgres = library<NodePgTransaction>(['drizzle-orm', 'pg'], (url) => {
  const pool = new pg.Pool({ connectionString: url });
  const db = onNodePostgres(pool);
  return Promise.resolve({
    outside: db,
    transaction: (work) => db.transaction(work),
    nested: (tx, work) => tx.transaction(work),
    insert: (tx, name) => tx.insert(effects).values({ name }),
    close: () => pool.end(),
  });
});

export const drizzleOnPostgresJs = library<PostgresJsTransaction>(
  ['drizzle-orm', 'postgres'],
  (url) => {
    const sql = postgres(url, { prepare: false });
    const db = onPostgresJs(sql);
    return Promise.resolve({
      outside: db,
      transaction: (work) => db.transaction(work),
      nested: (tx, work) => tx.transaction(work),
      insert: (tx, name) => tx.insert(effects).values({ name }),
      close: () => sql.end({ timeout: 5 }),
    });
  },
);
