// Holds in the database: renewed and released by the process that took them; see sql/functions/core/holds.sql. Each
// subject takes its hold with a function of its own, which returns the token.

import type { Database } from './connection.js';

/** A hold that this process took. `token` proves it: each change of holder makes a new one. */
export type HeldName = { name: string; token: string };

/** False: another process has taken it. */
export async function renewHold(database: Database, { name, token }: HeldName): Promise<boolean> {
  const [row] = await database.query<{ held: boolean }>(
    `hold ${name}`,
    `SELECT ${database.schema}.renew_hold($1, $2) AS held`,
    [name, token],
  );
  return row?.held ?? false;
}

/** False: it was lost before. */
export async function releaseHold(database: Database, { name, token }: HeldName): Promise<boolean> {
  const [row] = await database.query<{ released: boolean }>(
    `release ${name}`,
    `SELECT ${database.schema}.release_hold($1, $2) AS released`,
    [name, token],
  );
  return row?.released ?? false;
}
