// What enqueue and the inbox need of a database handle: one method that runs SQL on the caller's own
// transaction, and a way to tell that there is one. Each driver gets a small adapter of this shape in this folder.

export type Transaction = {
  query(sql: string, parameters: readonly unknown[]): Promise<Record<string, unknown>[]>;
  /** Why this handle is not inside a transaction, or null if it is. */
  outsideBecause(): Promise<string | null>;
};
