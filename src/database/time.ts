// The time of the database, which counts instead of that of this machine.

import type { Database } from './connection.js';

/** Rounded up, so that it is later than what has happened. */
export async function databaseTime(database: Database): Promise<Date> {
  const [row] = await database.query<{ now: Date }>(
    'read the time',
    "SELECT clock_timestamp() + interval '1 ms' AS now",
  );
  return row?.now ?? new Date();
}
