// Key retention: removes unused keys, their lanes and their inbox positions, in short transactions with pauses. For
// keys and lanes the database records the progress, so a run may end anywhere; it ends after a bounded number of
// slices.

import type { Database } from '../../database/connection.js';

/** Slices per run: with the defaults five million keys, in about ten minutes. The next run continues from there. */
const maxSlices = 5000;

type Pace = { batchSize: number; pauseMs: number };

export async function forgetKeys(database: Database, pace: Pace, days: number): Promise<number> {
  const sql = `SELECT looked_at AS looked, forgotten FROM ${database.schema}.forget_keys($2::int * interval '1 day', $1)`;
  return lap(database, 'forget keys', sql, pace, [days]);
}

export async function forgetLanes(database: Database, pace: Pace): Promise<number> {
  const sql = `SELECT looked_at AS looked, forgotten FROM ${database.schema}.forget_lanes($1)`;
  return lap(database, 'forget lanes', sql, pace, []);
}

/** Progress is kept only here: there are no more positions than keys, and the next run starts from the beginning. */
export async function forgetPositions(
  database: Database,
  { batchSize, pauseMs }: Pace,
  days: number,
): Promise<number> {
  let after: string[] | null = null;
  for (let total = 0; ;) {
    const rows: { looked: number; forgotten: number; last: string[] | null }[] =
      await database.query(
        'forget positions',
        `SELECT looked_at AS looked, forgotten, last FROM ${database.schema}.forget_positions($1::int * interval '1 day', $2, $3)`,
        [days, batchSize, after],
      );
    total += rows[0]?.forgotten ?? 0;
    after = rows[0]?.last ?? null;
    if ((rows[0]?.looked ?? 0) < batchSize) return total;
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

/** Continues to the end of the table, or up to the limit of one run. */
async function lap(
  database: Database,
  what: string,
  sql: string,
  { batchSize, pauseMs }: Pace,
  values: readonly number[],
): Promise<number> {
  let total = 0;
  for (let slice = 1; slice <= maxSlices; slice += 1) {
    const [row] = await database.query<{ looked: number; forgotten: number }>(what, sql, [
      batchSize,
      ...values,
    ]);
    total += row?.forgotten ?? 0;
    if ((row?.looked ?? 0) < batchSize) break;
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  return total;
}
