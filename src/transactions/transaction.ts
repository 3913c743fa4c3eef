// What enqueue and the inbox need of a database handle: one method that runs SQL on the caller's own
// transaction, and a way to tell that there is one. Each driver or ORM has a small adapter of this shape in this
// folder, structurally typed: its package is no dependency, and any version that looks like it fits.

export type Transaction = {
  query(sql: string, parameters: readonly unknown[]): Promise<Record<string, unknown>[]>;
};

/** Why a handle is in no transaction, and what to give instead: a sentence's beginning. */
export type Outside = { because: string; remedy: string };

export type Adapter<Handle> = {
  /** What to give instead of a handle outside a transaction: a sentence's beginning. */
  inside: string;
  fits(handle: object): boolean;
  /** Runs the SQL with parameters $1, $2 …; gives the rows, or an object that has them. */
  run(handle: Handle, sql: string, parameters: readonly unknown[]): PromiseLike<unknown>;
  /** What the handle itself knows of the statement that it would send next: true, why not, or undefined where the server has to be asked. */
  knows?(handle: Handle): true | Outside | undefined;
};

/** Handles are functions in some libraries and proxies in others: a method is what can be called. */
export function has(handle: object, ...methods: string[]): boolean {
  return methods.every((name) => typeof (handle as Record<string, unknown>)[name] === 'function');
}
