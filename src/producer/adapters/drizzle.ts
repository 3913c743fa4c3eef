// Drizzle adapter: the tx of db.transaction(), with any of its PostgreSQL drivers. execute() accepts any object that
// can turn itself into a query, so Drizzle's sql`` need not be imported.

import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type DrizzleTransaction = {
  execute(query: string): PromiseLike<unknown>;
  transaction(work: never): Promise<unknown>;
};

export const drizzle: Adapter<DrizzleTransaction> = {
  inside: 'Give the tx that db.transaction(async (tx) => …) hands you',
  fits: (handle) => has(handle, 'execute', 'transaction'),
  run(tx, sql, parameters) {
    const query = { getSQL: () => ({ toQuery: () => ({ sql, params: [...parameters] }) }) };
    return tx.execute(query as unknown as string);
  },
};
