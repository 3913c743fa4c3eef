// Statistics: relays add counts, and the page and the metrics read them.

import type { Database } from '../database/connection.js';

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
  /** Since midnight, UTC. */
  deliveredToday: number;
  diedToday: number;
  /** Of the deliveries that ended in the requested time, the share that was delivered; null if none ended. */
  deliveryRate: number | null;
  /** Of the tries in the requested time, the share that succeeded; null if there were none. */
  successRate: number | null;
  points: Point[];
};

/** The seconds of a point: a multiple of the slices that old statistics are merged into, so that points are even. */
function stepOf(minutes: number, points: number): number {
  const sliceSeconds = minutes > 1440 ? 600 : minutes > 60 ? 60 : 10;
  return sliceSeconds * Math.max(1, Math.ceil((minutes * 60) / points / sliceSeconds));
}

export type DestinationStatistics = Counts & {
  /** The tries that failed, those that were the last one too. */
  failed: number;
  deliveryRate: number | null;
  successRate: number | null;
  stepSeconds: number;
  points: { at: Date; delivered: number; failed: number; died: number; expired: number }[];
};

/** Counts of one destination over the last `minutes`, in about `points` intervals; those without any are 0. */
export async function readDestinationStatistics(
  database: Database,
  destination: string,
  minutes: number,
  points = 60,
): Promise<DestinationStatistics> {
  const { schema } = database;
  const stepSeconds = stepOf(minutes, points);
  const [totals, series] = await Promise.all([
    database.query<Omit<DestinationStatistics, 'stepSeconds' | 'points' | 'expired'>>(
      'read statistics of a destination',
      `SELECT r.delivered::float8 AS delivered, r.retried::float8 AS retried, r.died::float8 AS died,
              (r.retried + r.died)::float8 AS failed, r.delivery_rate::float8 AS "deliveryRate", r.success_rate::float8 AS "successRate"
         FROM ${schema}.delivery_rates($1 * interval '1 minute', $2) r`,
      [minutes, destination],
    ),
    database.query<DestinationStatistics['points'][number]>(
      'read statistics of a destination',
      `WITH counted AS (
         SELECT date_bin($2 * interval '1 second', s.slice, 'epoch') AS at, sum(s.delivered) AS delivered, sum(s.retried + s.died) AS failed, sum(s.died) AS died,
                sum(s.expired) AS expired
           FROM ${schema}.statistics s
          WHERE s.destination_id = (SELECT d.id FROM ${schema}.destinations d WHERE d.name = $3)
            AND s.slice >= statement_timestamp() - $1 * interval '1 minute'
          GROUP BY 1)
       SELECT g.at, coalesce(c.delivered, 0)::float8 AS delivered, coalesce(c.failed, 0)::float8 AS failed, coalesce(c.died, 0)::float8 AS died,
              coalesce(c.expired, 0)::float8 AS expired
         FROM generate_series(date_bin($2 * interval '1 second', statement_timestamp() - $1 * interval '1 minute', 'epoch'),
                              statement_timestamp(), $2 * interval '1 second') g(at)
         LEFT JOIN counted c ON c.at = g.at
        ORDER BY g.at`,
      [minutes, stepSeconds, destination],
    ),
  ]);
  const [found] = totals;
  if (found === undefined) throw new Error('delivery_rates answered nothing');
  const expired = series.reduce((sum, point) => sum + point.expired, 0);
  return { ...found, expired, stepSeconds, points: series };
}

/** About `points` points over the last `minutes`. */
export async function readOverview(
  database: Database,
  minutes: number,
  points = 60,
): Promise<Overview> {
  const { schema } = database;
  const stepSeconds = stepOf(minutes, points);
  const series = await database.query<Point>(
    'read overview',
    `WITH counted AS (
       SELECT date_bin($2 * interval '1 second', s.slice, 'epoch') AS at, sum(s.delivered) AS delivered, sum(s.retried) AS retried, sum(s.died) AS died
         FROM ${schema}.statistics s WHERE s.slice >= statement_timestamp() - $1 * interval '1 minute' GROUP BY 1),
     sampled AS (
       SELECT date_bin($2 * interval '1 second', s.slice, 'epoch') AS at, sum(s.enqueued)::numeric / sum(${schema}.sample_seconds(s.slice)) AS enqueued,
              max(s.waiting) AS waiting, max(s.retrying) AS retrying, max(s.dead) AS dead, max(s.oldest_seconds) AS oldest,
              avg(s.average_ms) AS average, avg(s.p50_ms) AS p50, max(s.p99_ms) AS p99
         FROM ${schema}.samples s WHERE s.slice >= statement_timestamp() - $1 * interval '1 minute' GROUP BY 1)
     SELECT g.at, sampled.enqueued::float8 AS in, coalesce(counted.delivered, 0)::float8 / $2 AS out, coalesce(counted.retried + counted.died, 0)::float8 / $2 AS failed,
            coalesce(counted.died, 0)::float8 / $2 AS died, sampled.waiting::float8 AS waiting, sampled.retrying::float8 AS retrying, sampled.dead::float8 AS dead,
            sampled.oldest::float8 AS "oldestSeconds", sampled.average::float8 AS "averageMs", sampled.p50::float8 AS "p50Ms", sampled.p99::float8 AS "p99Ms"
       FROM generate_series(date_bin($2 * interval '1 second', clock_timestamp() - $1 * interval '1 minute', 'epoch') + $2 * interval '1 second',
                            clock_timestamp() - $2 * interval '1 second', $2 * interval '1 second') g(at)
       LEFT JOIN counted ON counted.at = g.at LEFT JOIN sampled ON sampled.at = g.at
      ORDER BY g.at`,
    [minutes, stepSeconds],
  );
  const [today] = await database.query<Omit<Overview, 'points'>>(
    'read overview',
    `SELECT clock_timestamp() AS now, r.delivery_rate::float8 AS "deliveryRate", r.success_rate::float8 AS "successRate", t.*
       FROM ${schema}.delivery_rates($1 * interval '1 minute') r,
            (SELECT coalesce(sum(s.delivered), 0)::float8 AS "deliveredToday", coalesce(sum(s.died), 0)::float8 AS "diedToday"
               FROM ${schema}.statistics s WHERE s.slice >= date_trunc('day', statement_timestamp(), 'UTC')) t`,
    [minutes],
  );
  const nothing = {
    now: new Date(),
    deliveredToday: 0,
    diedToday: 0,
    deliveryRate: null,
    successRate: null,
  };
  return { ...(today ?? nothing), points: series };
}
