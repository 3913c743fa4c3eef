// Adapter contract: what enqueue and the inbox need from a database handle: a method that runs SQL in the caller's
// transaction, and a way to tell whether there is one. Each driver or ORM has a small adapter in this folder. It is
// structurally typed, so the package is no dependency and any compatible version works.

export type Transaction = {
  query(sql: string, parameters: readonly unknown[]): Promise<Record<string, unknown>[]>;
};

/** Why a handle is in no transaction, and what to pass instead; both are beginnings of sentences. */
export type Outside = { because: string; remedy: string };

export type Adapter<Handle> = {
  /** What to pass instead of a handle outside a transaction; the beginning of a sentence. */
  inside: string;
  fits(handle: object): boolean;
  /** Runs the SQL with parameters $1, $2 …; returns the rows, or an object that contains them. */
  run(handle: Handle, sql: string, parameters: readonly unknown[]): PromiseLike<unknown>;
  /**
   * What the handle itself knows about the next statement: true (in a transaction), why not, or undefined if the server
   * must be asked.
   */
  knows?(handle: Handle): true | Outside | undefined;
};

/** Handles are functions in some libraries and proxies in others, so a method is any property that can be called. */
export function has(handle: object, ...methods: string[]): boolean {
  return methods.every((name) => typeof (handle as Record<string, unknown>)[name] === 'function');
}
