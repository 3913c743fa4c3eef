// Finds the adapter for the handle that an application gives, and insists on a transaction where one is needed.

import { NoTransactionError, shown } from '../errors.js';
import { isNodePostgresClient, nodePostgresTransaction } from './node-postgres.js';
import type { NodePostgresClient } from './node-postgres.js';
import type { Transaction } from './transaction.js';

/** What an application may give as its transaction. */
export type TransactionHandle = NodePostgresClient;

/** The remedy is what the error says after the reason. */
export function adapt(handle: unknown, remedy: string): Transaction {
  if (isNodePostgresClient(handle)) return nodePostgresTransaction(handle);
  throw new NoTransactionError(
    `${shown(handle)} is not a database client that Waybill knows`,
    remedy,
  );
}

export async function adaptInside(handle: unknown, remedy: string): Promise<Transaction> {
  const transaction = adapt(handle, remedy);
  const reason = await transaction.outsideBecause();
  if (reason !== null) throw new NoTransactionError(reason, remedy);
  return transaction;
}
