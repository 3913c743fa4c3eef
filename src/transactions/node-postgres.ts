// node-postgres: a Client, or a PoolClient checked out of a pool, on which BEGIN has been run. A Pool is
// not a transaction: each of its queries may go to another connection.

import type { Transaction } from './transaction.js';

/** Structurally typed, so that any version of `pg` fits. */
export type NodePostgresClient = {
  query(sql: string, parameters: unknown[]): Promise<{ rows: unknown[] }>;
};

export function isNodePostgresClient(handle: unknown): handle is NodePostgresClient {
  return typeof (handle as { query?: unknown } | null)?.query === 'function';
}

export function nodePostgresTransaction(client: NodePostgresClient): Transaction {
  return {
    async query(sql, parameters) {
      const { rows } = await client.query(sql, [...parameters]);
      return rows as Record<string, unknown>[];
    },
    async outsideBecause() {
      if ('totalCount' in client && 'idleCount' in client)
        return 'this is a pool, not a transaction';
      // The driver learns the state from the server after every query (T: in a transaction, E: in a failed
      // one). I is only what it knew last: a BEGIN may be on its way, so the server is asked.
      const state = (
        client as { getTransactionStatus?: () => string | null }
      ).getTransactionStatus?.();
      if (state === 'T' || state === 'E') return null;
      // In a transaction block, now() stands still while the statement's own time moves on.
      const { rows } = await client.query('SELECT now() = statement_timestamp() AS outside', []);
      return (rows[0] as { outside: boolean }).outside
        ? 'this client is not in a transaction'
        : null;
    },
  };
}
