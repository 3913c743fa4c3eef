// node-postgres: a Client, or a PoolClient checked out of a pool, on which BEGIN has been run. A Pool is
// not a transaction: each of its queries may go to another connection. Whatever else has this method, and gives
// rows or an object with rows, is taken too.

import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type NodePostgresClient = {
  query(sql: string, parameters: unknown[]): PromiseLike<unknown>;
};

export const nodePostgres: Adapter<NodePostgresClient> = {
  inside: 'Run BEGIN on this client first',
  fits: (handle) => has(handle, 'query'),
  run: (client, sql, parameters) => client.query(sql, [...parameters]),
  knows(client) {
    if ('totalCount' in client && 'idleCount' in client) return 'this is a pool, not a transaction';
    // The driver learns the state from the server after every query (T: in a transaction, E: in a failed
    // one). I is only what it knew last: a BEGIN may be on its way, so the server is asked.
    const state = (
      client as { getTransactionStatus?: () => string | null }
    ).getTransactionStatus?.();
    return state === 'T' || state === 'E' ? true : undefined;
  },
};
