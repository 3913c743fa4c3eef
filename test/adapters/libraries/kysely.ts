import { CamelCasePlugin, Kysely, PostgresDialect } from 'kysely';
import type { ControlledTransaction } from 'kysely';
import pg from 'pg';

import { library } from '../library.js';

type Tables = { effects: { name: string } };

// Column names are rewritten, as in many applications.
export default library<ControlledTransaction<Tables, string[]>>(['kysely', 'pg'], (url) => {
  const db = new Kysely<Tables>({
    dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url }) }),
    plugins: [new CamelCasePlugin()],
  });
  return Promise.resolve({
    outside: db,
    async transaction(work) {
      const trx = await db.startTransaction().execute();
      try {
        const value = await work(trx);
        await trx.commit().execute();
        return value;
      } catch (error) {
        await trx.rollback().execute();
        throw error;
      }
    },
    async nested(trx, work) {
      const inner = await trx.savepoint('inner_one').execute();
      try {
        return await work(inner);
      } catch (error) {
        await inner.rollbackToSavepoint('inner_one').execute();
        throw error;
      }
    },
    insert: (trx, name) => trx.insertInto('effects').values({ name }).execute(),
    close: () => db.destroy(),
  });
});
