// What the contract needs of a driver or an ORM, in its own words: its transaction, one inside another, an insert,
// and a handle that is in no transaction. Each library is the real package; its name and version are read from it.

import { readFileSync } from 'node:fs';

import type { TransactionHandle } from '../../src/transactions/adapt.js';

export type Opened<Tx> = {
  /** Throwing rolls it back. */
  transaction<T>(work: (tx: Tx) => Promise<T>): Promise<T>;
  /** Throwing rolls back to where it began, and no further. */
  nested<T>(tx: Tx, work: (tx: Tx) => Promise<T>): Promise<T>;
  /** A row of the table effects, as an application would write it. */
  insert(tx: Tx, name: string): Promise<unknown>;
  /** The same kind of handle in no transaction. */
  readonly outside: TransactionHandle;
  close(): Promise<unknown>;
};

export type Library = {
  readonly title: string;
  open(url: string): Promise<Opened<TransactionHandle>>;
};

/** That Tx is a TransactionHandle, without a cast, is the proof that applications can give theirs. */
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
