// Statistics of one destination: its counts over time for its chart, and its totals.

import type { Database } from '../database/connection.js';
import { readBounds } from './chart-bounds.js';
import type { ChartBounds } from './chart-bounds.js';
import type { Counts } from './statistics.js';

export type DestinationStatistics = Counts & {
  /** The tries that failed, those that were the last one too. */
  failed: number;
  deliveryRate: number | null;
  successRate: number | null;
  stepSeconds: number;
  /** Each at the end of its time. */
  points: { at: Date; delivered: number; failed: number; died: number; expired: number }[];
};

/**
 * Points of equal length, the last one up to the last complete slice: it would be too low with the slice that is
 * running. The totals are those up to now.
 */
export async function readDestinationStatistics(
  database: Database,
  destination: string,
  minutes: number,
  givenPoints?: number,
): Promise<DestinationStatistics> {
  const { schema } = database;
  const bounds = await readBounds(database, minutes, givenPoints);
  const [totals, points] = await Promise.all([
    database.query<Omit<DestinationStatistics, 'stepSeconds' | 'points'>>(
      'read statistics of a destination',
      `SELECT r.delivered::float8 AS delivered, r.retried::float8 AS retried, r.died::float8 AS died, e.expired::float8 AS expired,
              (r.retried + r.died)::float8 AS failed, r.delivery_rate::float8 AS "deliveryRate", r.success_rate::float8 AS "successRate"
         FROM ${schema}.delivery_rates($1 * interval '1 minute', $2) r,
              (SELECT coalesce(sum(s.expired), 0) AS expired FROM ${schema}.statistics s
                WHERE s.destination_id = (SELECT d.id FROM ${schema}.destinations d WHERE d.name = $2)
                  AND s.slice >= statement_timestamp() - $1 * interval '1 minute') e`,
      [minutes, destination],
    ),
    readPoints(database, destination, bounds),
  ]);
  const [found] = totals;
  if (found === undefined) throw new Error('delivery_rates answered nothing');
  return { ...found, stepSeconds: bounds.stepSeconds, points };
}

function readPoints(
  database: Database,
  destination: string,
  { first, endAt, stepSeconds }: ChartBounds,
): Promise<DestinationStatistics['points']> {
  const { schema } = database;
  return database.query<DestinationStatistics['points'][number]>(
    'read statistics of a destination',
    `WITH counted AS (
       SELECT date_bin($2 * interval '1 second', s.slice, $3) AS start, sum(s.delivered) AS delivered, sum(s.retried + s.died) AS failed,
              sum(s.died) AS died, sum(s.expired) AS expired
         FROM ${schema}.statistics s
        WHERE s.destination_id = (SELECT d.id FROM ${schema}.destinations d WHERE d.name = $4) AND s.slice >= $1 AND s.slice < $3
        GROUP BY 1)
     SELECT g.start + $2 * interval '1 second' AS at, coalesce(c.delivered, 0)::float8 AS delivered, coalesce(c.failed, 0)::float8 AS failed,
            coalesce(c.died, 0)::float8 AS died, coalesce(c.expired, 0)::float8 AS expired
       FROM generate_series($1::timestamptz, $3::timestamptz - interval '1 second', $2 * interval '1 second') g(start)
       LEFT JOIN counted c ON c.start = g.start
      ORDER BY g.start`,
    [first, stepSeconds, endAt, destination],
  );
}
