// What the contract needs from a driver or an ORM, in that library's own API: a transaction, a nested transaction, an
// insert, and a handle outside a transaction. The name and version are read from the real package.

import { readFileSync } from 'node:fs';

import type { TransactionHandle } from '../../src/producer/adapters/adapt.js';

export type Opened<Tx> = {
  /** Throwing rolls the transaction back. */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Throwing rolls back to its beginning, and no further. */
  nested<T>(tx: Tx, work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Writes a row of the table effects, as an application would. */
  insert(tx: Tx, name: string): Promise<unknown>;
  /** The same kind of handle, outside a transaction. */
  readonly outside: TransactionHandle;
  close(): Promise<unknown>;
};

export type Library = {
  readonly title: string;
  open(url: string): Promise<Opened<TransactionHandle>>;
};

/** Tx is a TransactionHandle without a cast: this proves that applications can pass theirs. */
export function library<Tx extends TransactionHandle>(
  packages: readonly string[],
  open: (url: string) => Promise<Opened<Tx>>,
): Library {
  return {
    title: packages.map(nameAndVersion).join(' on '),
    open,
  };
}

export function nameAndVersion(name: string): string {
  const file = new URL(`node_modules/${name}/package.json`, import.meta.url);
  const { version } = JSON.parse(readFileSync(file, 'utf8')) as { version: string };
  return `${name}@${version}`;
}
