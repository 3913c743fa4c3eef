// Statistics of one destination: its counts over time for its chart, and its totals.

import type { Database } from '../database/connection.js';
import { findDestination } from '../database/definitions.js';
import { readBounds } from './chart-bounds.js';
import type { ChartBounds, ChartRange } from './chart-bounds.js';
import type { Counts } from './statistics.js';

export type DestinationStatistics = Counts & {
  /** All failed tries: `retried` and `died`. */
  failed: number;
  deliveryRate: number | null;
  successRate: number | null;
  stepSeconds: number;
  /** Each at the end of its time. */
  points: { at: Date; delivered: number; failed: number; died: number; expired: number }[];
};

/**
 * Points of equal length over the last minutes, or between two moments. The last one ends with the last complete slice:
 * with the slice that is running, it would be too low. The totals of the last minutes are those up to now.
 */
export async function readDestinationStatistics(
  database: Database,
  destination: string,
  given: number | ChartRange,
  givenPoints?: number,
): Promise<DestinationStatistics> {
  const bounds = await readBounds(database, given, givenPoints);
  const { stepSeconds } = bounds;
  if (typeof given === 'number') {
    const [totals, points] = await Promise.all([
      readTotals(database, destination, given),
      readPoints(database, destination, bounds),
    ]);
    return { ...totals, stepSeconds, points };
  }
  // throws if the destination is unknown
  await findDestination(database, destination);
  const points = await readPoints(database, destination, bounds);
  return { ...totalsOf(points), stepSeconds, points };
}

type Totals = Omit<DestinationStatistics, 'stepSeconds' | 'points'>;

async function readTotals(
  database: Database,
  destination: string,
  minutes: number,
): Promise<Totals> {
  const { schema } = database;
  const [found] = await database.query<Totals>(
    'read statistics of a destination',
    `SELECT r.delivered::float8 AS delivered, r.retried::float8 AS retried, r.died::float8 AS died, e.expired::float8 AS expired,
            (r.retried + r.died)::float8 AS failed, r.delivery_rate::float8 AS "deliveryRate", r.success_rate::float8 AS "successRate"
       FROM ${schema}.delivery_rates($1 * interval '1 minute', $2) r,
            (SELECT coalesce(sum(s.expired), 0) AS expired FROM ${schema}.statistics s
              WHERE s.destination_id = (SELECT d.id FROM ${schema}.destinations d WHERE d.name = $2)
                AND s.slice >= statement_timestamp() - $1 * interval '1 minute') e`,
    [minutes, destination],
  );
  if (found === undefined) throw new Error('delivery_rates answered nothing');
  return found;
}

/** The totals of the points, with the rates as delivery_rates computes those of the present. */
function totalsOf(points: DestinationStatistics['points']): Totals {
  const sum = (name: 'delivered' | 'failed' | 'died' | 'expired'): number =>
    points.reduce((total, point) => total + point[name], 0);
  const [delivered, failed, died] = [sum('delivered'), sum('failed'), sum('died')];
  // truncated, so that one of a million that died does not look like none
  const share = (all: number): number | null =>
    all === 0 ? null : Math.floor((delivered * 1e6) / all) / 1e6;
  return {
    delivered,
    retried: failed - died,
    died,
    expired: sum('expired'),
    failed,
    deliveryRate: share(delivered + died),
    successRate: share(delivered + failed),
  };
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
