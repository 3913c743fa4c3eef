// MikroORM adapter: the EntityManager of a transaction. Its own execute() writes parameters into the SQL. The adapter
// uses the transaction of Knex (version 6) or Kysely (version 7) inside it, which binds them.

import { knex } from './knex.js';
import { kysely } from './kysely.js';
import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type MikroOrmManager = {
  getTransactionContext(): unknown;
};

export const mikroOrm: Adapter<MikroOrmManager> = {
  inside: 'Give the em that em.transactional(async (em) => …) hands you',
  fits: (handle) => has(handle, 'getTransactionContext'),
  run(em, sql, parameters) {
    const builder = em as { getKnex?: () => unknown; getKysely?: () => unknown };
    const held = em.getTransactionContext() ?? builder.getKnex?.() ?? builder.getKysely?.();
    return kysely.fits(held as object)
      ? kysely.run(held as never, sql, parameters)
      : knex.run(held as never, sql, parameters);
  },
};
