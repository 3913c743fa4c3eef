// Statistics: relays add counts, and the page and the metrics read them.

import type { Database } from '../database/connection.js';
import { readBounds } from './chart-bounds.js';
import type { ChartRange } from './chart-bounds.js';

export type Counts = { delivered: number; retried: number; died: number; expired: number };

/** Adds a relay's counts, by destination id. */
export async function addStatistics(
  database: Database,
  counts: ReadonlyMap<number, Counts>,
): Promise<void> {
  const entries = [...counts];
  if (entries.length === 0) return;
  await database.query(
    'add statistics',
    `SELECT ${database.schema}.add_statistics($1, $2, $3, $4, $5)`,
    [
      entries.map(([id]) => id),
      entries.map(([, { delivered }]) => delivered),
      entries.map(([, { retried }]) => retried),
      entries.map(([, { died }]) => died),
      entries.map(([, { expired }]) => expired),
    ],
  );
}

/** Takes the sample of the last time slice, unless another relay has done so. */
export async function takeSample(database: Database): Promise<void> {
  await database.query('take sample', `SELECT ${database.schema}.take_sample()`);
}

/**
 * One point of the charts. `in`, `out`, `failed` and `died` are per second. Averages and p50 are the mean of the
 * samples in its time; the other values are the largest.
 */
export type Point = {
  /** The end of its time. */
  at: Date;
  in: number | null;
  out: number;
  failed: number;
  died: number;
  waiting: number | null;
  retrying: number | null;
  dead: number | null;
  oldestSeconds: number | null;
  averageMs: number | null;
  p50Ms: number | null;
  p99Ms: number | null;
};

export type Overview = {
  now: Date;
  /** When the first sample was taken; null if there is none. */
  since: Date | null;
  /** Since midnight, UTC. */
  deliveredToday: number;
  diedToday: number;
  /** Of the deliveries that ended in the requested time, the share that was delivered; null if none ended. */
  deliveryRate: number | null;
  /** Of the tries in the requested time, the share that succeeded; null if there were none. */
  successRate: number | null;
  points: Point[];
};

/**
 * About `points` points over the last `minutes`, or between two moments. They end with the last complete slice: the
 * intervals are counted back from there, in whole slices of the size that old ones are merged into, and the last one
 * takes the rest.
 */
export async function readOverview(
  database: Database,
  given: number | ChartRange,
  points?: number,
): Promise<Overview> {
  const { schema } = database;
  const bounds = await readBounds(database, given, points);
  // rates are those of the time in which a relay was there: of the samples, or of the slices with counts if these are
  // more
  const series = await database.query<Point>(
    'read overview',
    // the first sample ever, if it was not merged yet, counts what was enqueued before the first relay
    `WITH began AS MATERIALIZED (
       SELECT CASE WHEN ${schema}.sample_seconds(min(s.slice)) = 10 THEN min(s.slice) END AS slice FROM ${schema}.samples s),
     counted AS (
       SELECT date_bin($2 * interval '1 second', s.slice, $3) AS start, sum(s.delivered) AS delivered, sum(s.retried) AS retried, sum(s.died) AS died,
              10 * count(DISTINCT s.slice) AS seconds
         FROM ${schema}.statistics s WHERE s.slice >= $1 AND s.slice < $4 GROUP BY 1),
     sampled AS (
       SELECT date_bin($2 * interval '1 second', s.slice, $3) AS start, sum(${schema}.sample_seconds(s.slice)) AS seconds,
              sum(s.enqueued) FILTER (WHERE s.slice IS DISTINCT FROM (SELECT b.slice FROM began b)) / sum(${schema}.sample_seconds(s.slice)) FILTER (WHERE s.slice IS DISTINCT FROM (SELECT b.slice FROM began b)) AS enqueued,
              max(s.waiting) AS waiting, max(s.retrying) AS retrying, max(s.dead) AS dead, max(s.oldest_seconds) AS oldest,
              avg(s.average_ms) AS average, avg(s.p50_ms) AS p50, max(s.p99_ms) AS p99
         FROM ${schema}.samples s WHERE s.slice >= $1 AND s.slice < $4 GROUP BY 1)
     SELECT least(g.start + $2 * interval '1 second', $4) AS at, sampled.enqueued::float8 AS in,
            coalesce(counted.delivered, 0)::float8 / x.seconds AS out, coalesce(counted.retried + counted.died, 0)::float8 / x.seconds AS failed,
            coalesce(counted.died, 0)::float8 / x.seconds AS died, sampled.waiting::float8 AS waiting, sampled.retrying::float8 AS retrying, sampled.dead::float8 AS dead,
            sampled.oldest::float8 AS "oldestSeconds", sampled.average::float8 AS "averageMs", sampled.p50::float8 AS "p50Ms", sampled.p99::float8 AS "p99Ms"
       FROM generate_series($1::timestamptz, $4::timestamptz - interval '10 seconds', $2 * interval '1 second') g(start)
       LEFT JOIN counted ON counted.start = g.start LEFT JOIN sampled ON sampled.start = g.start
       CROSS JOIN LATERAL (
         SELECT least(extract(epoch FROM least(g.start + $2 * interval '1 second', $4) - g.start),
                      CASE WHEN sampled.seconds IS NOT NULL THEN greatest(sampled.seconds, counted.seconds) END)::float8 AS seconds) x
      ORDER BY g.start`,
    [bounds.first, bounds.stepSeconds, bounds.endAt, bounds.now],
  );
  const [today] = await database.query<Omit<Overview, 'points'>>(
    'read overview',
    `SELECT clock_timestamp() AS now, r.delivery_rate::float8 AS "deliveryRate", r.success_rate::float8 AS "successRate", t.*,
            (SELECT min(s.slice) FROM ${schema}.samples s) AS since
       FROM ${typeof given === 'number' ? `${schema}.delivery_rates($1 * interval '1 minute')` : ratesBetween(schema)} r,
            (SELECT coalesce(sum(s.delivered), 0)::float8 AS "deliveredToday", coalesce(sum(s.died), 0)::float8 AS "diedToday"
               FROM ${schema}.statistics s WHERE s.slice >= date_trunc('day', statement_timestamp(), 'UTC')) t`,
    typeof given === 'number' ? [given] : [bounds.first, bounds.now],
  );
  const nothing = {
    now: new Date(),
    since: null,
    deliveredToday: 0,
    diedToday: 0,
    deliveryRate: null,
    successRate: null,
  };
  return { ...(today ?? nothing), points: series };
}

/** The two rates of a time in the past, as delivery_rates computes those of the present. */
function ratesBetween(schema: string): string {
  return `(SELECT sum(s.delivered) / nullif(sum(s.delivered + s.died), 0) AS delivery_rate,
                  sum(s.delivered) / nullif(sum(s.delivered + s.retried + s.died), 0) AS success_rate
             FROM ${schema}.statistics s WHERE s.slice >= $1 AND s.slice < $2)`;
}
