// Is this handle inside a transaction? The server is asked with a statement that it refuses outside of one, by a
// code of its own. Any driver, ORM or pooler passes that on, and it stays true for a handle that was kept beyond
// its transaction. LOCK TABLE is the one such statement that leaves nothing to be undone: everybody may read this
// table, reading it takes the same lock, and no snapshot is taken.

const question = 'LOCK TABLE pg_catalog.pg_class IN ACCESS SHARE MODE';
const noActiveTransaction = '25P01';

export async function isInside(
  run: (sql: string, parameters: readonly unknown[]) => PromiseLike<unknown>,
): Promise<boolean> {
  try {
    await run(question, []);
    return true;
  } catch (error) {
    if (sqlStates(error).has(noActiveTransaction)) return false;
    throw error;
  }
}

/** Libraries wrap what the driver throws: as a cause, or as what Prisma calls meta. */
function sqlStates(error: unknown, depth = 0): Set<unknown> {
  const found = new Set<unknown>();
  if (typeof error !== 'object' || error === null || depth > 5) return found;
  for (const name of ['code', 'originalCode']) found.add((error as Record<string, unknown>)[name]);
  for (const name of ['cause', 'meta', 'driverAdapterError'])
    for (const state of sqlStates((error as Record<string, unknown>)[name], depth + 1))
      found.add(state);
  return found;
}
