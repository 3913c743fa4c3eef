// Counts the pages of the database that the queries of a piece of work read, with the rights of a server: row-level
// security changes plans.

import type { Database } from '../../src/database/connection.js';
import type { TestDatabase } from './postgres.js';
import { openDatabase } from './relay.js';

export async function pagesOf<T>(
  db: TestDatabase,
  work: (database: Database) => Promise<T>,
): Promise<{ pages: number; answer: T }> {
  const database = openDatabase(db, 'test_server');
  let pages = 0;
  const counting = new Proxy(database, {
    get(target, key) {
      if (key !== 'query') return Reflect.get(target, key, target) as unknown;
      return async (what: string, sql: string, values: unknown[]) => {
        const rows = await target.query<{ 'QUERY PLAN': { Plan: Record<string, number> }[] }>(
          'explain',
          `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${sql}`,
          values,
        );
        const plan = rows[0]?.['QUERY PLAN'][0]?.Plan;
        pages += (plan?.['Shared Hit Blocks'] ?? 0) + (plan?.['Shared Read Blocks'] ?? 0);
        return target.query(what, sql, values);
      };
    },
  });
  // the first call of a session reads catalogs
  await work(database);
  return { answer: await work(counting), pages };
}
