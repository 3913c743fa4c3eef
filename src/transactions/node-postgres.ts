// node-postgres: a Client, or a PoolClient checked out of a pool, on which BEGIN has been run. A Pool is
// not a transaction: each of its queries may go to another connection. Whatever else has this method, and gives
// rows or an object with rows, is taken too.

import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type NodePostgresClient = {
  query(sql: string, parameters: unknown[]): PromiseLike<unknown>;
};

const pool = {
  because: 'this is a pool, not a transaction',
  remedy: 'Give a client of pool.connect() on which BEGIN was run',
};

export const nodePostgres: Adapter<NodePostgresClient> = {
  inside: 'Run BEGIN on this client first',
  fits: (handle) => has(handle, 'query'),
  run: (client, sql, parameters) => client.query(sql, [...parameters]),
  knows(client) {
    if ('totalCount' in client && 'idleCount' in client) return pool;
    // The driver learns the state from the server after every query (T: in a transaction, E: in a failed one). That
    // is only what it knew last: while it waits for an answer, a BEGIN, a COMMIT or a ROLLBACK may be on its way.
    const { readyForQuery, getTransactionStatus } = client as {
      readyForQuery?: unknown;
      getTransactionStatus?: () => string | null;
    };
    if (readyForQuery !== true) return undefined;
    const state = getTransactionStatus?.call(client);
    return state === 'T' || state === 'E' ? true : undefined;
  },
};
