// node-postgres adapter: a Client, or a PoolClient, on which BEGIN has been run. A Pool is not a transaction: each of
// its queries may use another connection. Any other object whose query() returns rows, or an object with rows, works
// too.

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
    // The driver learns the state from the server after every query (T: in a transaction, E: in a failed one). This is
    // only the last known state: while an answer is pending, a BEGIN, COMMIT or ROLLBACK may change it. In any other
    // state the server is asked; outside a transaction this ends in the refusal.
    const { readyForQuery, getTransactionStatus } = client as {
      readyForQuery?: unknown;
      getTransactionStatus?: () => string | null;
    };
    if (readyForQuery !== true) return undefined;
    const state = getTransactionStatus?.call(client);
    return state === 'T' || state === 'E' ? true : undefined;
  },
};
