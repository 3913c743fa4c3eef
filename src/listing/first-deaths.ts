// First deaths: the oldest dead letters of a destination with the codes of its errors. They say more about when errors
// began than a sample of the newest tries does.

import type { Database } from '../database/connection.js';

export type Cause = { errorCode: string; remoteCode: string | null };

/** For so many codes, and so many of the oldest letters of each code: other answers with that code may be before them. */
const mostCodes = 5;
const lettersOfCode = 1000;

/** When the oldest dead letter of each cause died, by `causeKey`; a cause without one is left out. */
export async function readFirstDeaths(
  database: Database,
  destination: string,
  causes: readonly Cause[],
): Promise<Map<string, Date>> {
  const codes = [...new Set(causes.map(({ errorCode }) => errorCode))].slice(0, mostCodes);
  if (codes.length === 0) return new Map();
  const { schema } = database;
  const rows = await database.query<Cause & { deadAt: Date }>(
    'read first dead letters',
    // A range and an order by the code make the planner use the index by code, which has both. With an equality it may
    // take the index by time instead, and read all letters with other codes.
    `SELECT c.code AS "errorCode", x.remote_code AS "remoteCode", min(x.dead_at) AS "deadAt"
       FROM unnest($2::text[]) c(code)
       CROSS JOIN LATERAL (
         SELECT l.remote_code, l.dead_at FROM ${schema}.dead_letters l
          WHERE l.destination_id = (SELECT t.id FROM ${schema}.destinations t WHERE t.name = $1)
            AND l.error_code BETWEEN c.code AND c.code
          ORDER BY l.error_code, l.dead_at, l.message_id LIMIT ${lettersOfCode}) x
      GROUP BY 1, 2`,
    [destination, codes],
  );
  return new Map(rows.map(({ deadAt, ...cause }) => [causeKey(cause), deadAt]));
}

export function causeKey({ errorCode, remoteCode }: Cause): string {
  return JSON.stringify([errorCode, remoteCode]);
}
