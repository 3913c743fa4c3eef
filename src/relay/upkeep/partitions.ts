// Partitions ahead: makes those of the coming days, and counts how many days they reach.

import type { Database } from '../../database/connection.js';

export async function makePartitions(
  database: Database,
): Promise<{ made: number; daysAhead: number }> {
  const { schema } = database;
  const [made] = await database.query<{ count: number }>(
    'make partitions',
    `SELECT ${schema}.make_partitions() AS count`,
  );
  // a separate query: one statement would not see the partitions that it made itself
  return { made: made?.count ?? 0, daysAhead: await partitionDaysAhead(database) };
}

export async function partitionDaysAhead(database: Database): Promise<number> {
  const [ahead] = await database.query<{ days: number }>(
    'look ahead',
    `SELECT ${database.schema}.partition_days_ahead() AS days`,
  );
  return ahead?.days ?? -1;
}
