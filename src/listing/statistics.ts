// Statistics: relays add counts, and the page and the metrics read them.

import { ConfigurationError } from '../core/errors.js';
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

/** The seconds of the largest slices that the statistics of this time are merged into. */
function sliceOf(minutes: number): number {
  return minutes > 1440 ? 600 : minutes > 60 ? 60 : 10;
}

/** The seconds of a point: a multiple of the slices, so that points are even. */
function stepOf(minutes: number, points: number, sliceSeconds = sliceOf(minutes)): number {
  return sliceSeconds * Math.max(1, Math.ceil((minutes * 60) / points / sliceSeconds));
}

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
 * Counts of one destination over the last `minutes`, in about `points` intervals; those without any are 0. Intervals
 * are counted back from the end of the present slice, so the last one is as long as the others.
 */
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
      `WITH bounds AS MATERIALIZED (
         SELECT x.until, x.until - ceil($1 * 60.0 / $2) * $2 * interval '1 second' AS first
           FROM (SELECT date_bin($4 * interval '1 second', statement_timestamp(), 'epoch') + $4 * interval '1 second' AS until) x),
       counted AS (
         SELECT date_bin($2 * interval '1 second', s.slice, b.until) AS start, sum(s.delivered) AS delivered, sum(s.retried + s.died) AS failed, sum(s.died) AS died,
                sum(s.expired) AS expired
           FROM bounds b, ${schema}.statistics s
          WHERE s.destination_id = (SELECT d.id FROM ${schema}.destinations d WHERE d.name = $3) AND s.slice >= b.first
          GROUP BY 1)
       SELECT least(g.start + $2 * interval '1 second', statement_timestamp()) AS at, coalesce(c.delivered, 0)::float8 AS delivered,
              coalesce(c.failed, 0)::float8 AS failed, coalesce(c.died, 0)::float8 AS died, coalesce(c.expired, 0)::float8 AS expired
         FROM bounds b
         CROSS JOIN LATERAL generate_series(b.first, b.until - interval '1 second', $2 * interval '1 second') g(start)
         LEFT JOIN counted c ON c.start = g.start
        ORDER BY g.start`,
      [minutes, stepSeconds, destination, sliceOf(minutes)],
    ),
  ]);
  const [found] = totals;
  if (found === undefined) throw new Error('delivery_rates answered nothing');
  const expired = series.reduce((sum, point) => sum + point.expired, 0);
  return { ...found, expired, stepSeconds, points: series };
}

/** A time between two moments of the last 31 days. */
export type OverviewRange = { from: Date; to: Date };

const keptMs = 31 * 86_400_000;

/** The range of a request, or undefined; refuses an invalid one. */
export function overviewRange(
  from: Date | undefined,
  to: Date | undefined,
): OverviewRange | undefined {
  if (from === undefined && to === undefined) return undefined;
  if (from === undefined || to === undefined)
    throw new ConfigurationError(
      `${from === undefined ? 'from' : 'to'} is missing: give from and to together`,
    );
  if (to.getTime() - from.getTime() < 60_000)
    throw new ConfigurationError(
      `to is ${to.toISOString()}: give a time at least a minute after from (${from.toISOString()})`,
    );
  const nowMs = Date.now();
  if (from.getTime() < nowMs - keptMs || from.getTime() > nowMs)
    throw new ConfigurationError(
      `from is ${from.toISOString()}: give a time of the last 31 days, for which statistics are kept`,
    );
  return { from, to };
}

/**
 * About `points` points over the last `minutes`, or between two moments. They end with the last complete slice: the
 * intervals are counted back from there, in whole slices of the size that old ones are merged into, and the last one
 * takes the rest.
 */
export async function readOverview(
  database: Database,
  given: number | OverviewRange,
  givenPoints?: number,
): Promise<Overview> {
  const { schema } = database;
  const range = typeof given === 'number' ? null : given;
  const minutes =
    typeof given === 'number' ? given : (given.to.getTime() - given.from.getTime()) / 60_000;
  const points = givenPoints ?? (minutes > 15 ? 60 : 90);
  // the size of the slices depends on their age
  const sliceSeconds = sliceOf(
    range === null ? minutes : (Date.now() - range.from.getTime()) / 60_000,
  );
  const stepSeconds = stepOf(minutes, points, sliceSeconds);
  const bounds = await readBounds(database, given, { stepSeconds, sliceSeconds });
  // rates are those of the time in which a relay was there: of the samples, or of the slices with counts if these are
  // more
  const series = await database.query<Point>(
    'read overview',
    `WITH counted AS (
       SELECT date_bin($2 * interval '1 second', s.slice, $3) AS start, sum(s.delivered) AS delivered, sum(s.retried) AS retried, sum(s.died) AS died,
              10 * count(DISTINCT s.slice) AS seconds
         FROM ${schema}.statistics s WHERE s.slice >= $1 AND s.slice < $4 GROUP BY 1),
     sampled AS (
       SELECT date_bin($2 * interval '1 second', s.slice, $3) AS start, sum(${schema}.sample_seconds(s.slice)) AS seconds,
              sum(s.enqueued) FILTER (WHERE s.slice IS DISTINCT FROM $5) / sum(${schema}.sample_seconds(s.slice)) FILTER (WHERE s.slice IS DISTINCT FROM $5) AS enqueued,
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
    [bounds.first, stepSeconds, bounds.endAt, bounds.now, bounds.sampleAt],
  );
  const [today] = await database.query<Omit<Overview, 'points'>>(
    'read overview',
    `SELECT clock_timestamp() AS now, r.delivery_rate::float8 AS "deliveryRate", r.success_rate::float8 AS "successRate", t.*,
            (SELECT min(s.slice) FROM ${schema}.samples s) AS since
       FROM ${range === null ? `${schema}.delivery_rates($1 * interval '1 minute')` : ratesBetween(schema)} r,
            (SELECT coalesce(sum(s.delivered), 0)::float8 AS "deliveredToday", coalesce(sum(s.died), 0)::float8 AS "diedToday"
               FROM ${schema}.statistics s WHERE s.slice >= date_trunc('day', statement_timestamp(), 'UTC')) t`,
    range === null ? [minutes] : [bounds.first, bounds.now],
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

type Bounds = {
  first: Date;
  /** The end of the last whole interval. */
  endAt: Date;
  /** The end of the last complete slice. */
  now: Date;
  /** The first sample ever, if it was not merged yet: it is of the time before the first relay. */
  sampleAt: Date | null;
};

async function readBounds(
  database: Database,
  given: number | OverviewRange,
  { stepSeconds, sliceSeconds }: { stepSeconds: number; sliceSeconds: number },
): Promise<Bounds> {
  const range = typeof given === 'number' ? null : given;
  const [bounds] = await database.query<Bounds>(
    'read overview',
    // the slice of the last moment is part of a range
    `SELECT b."endAt" - ceil(coalesce($1 * 60.0, extract(epoch FROM b."endAt" - $4::timestamptz)) / $2) * $2 * interval '1 second' AS first, b."endAt", b.now,
            (SELECT CASE WHEN ${database.schema}.sample_seconds(min(s.slice)) = 10 THEN min(s.slice) END FROM ${database.schema}.samples s) AS "sampleAt"
       FROM (SELECT date_bin('10 seconds', t.now, 'epoch') AS now, date_bin($3 * interval '1 second', t.now, 'epoch') AS "endAt"
               FROM (SELECT least(clock_timestamp(), date_bin($3 * interval '1 second', $5::timestamptz - interval '1 microsecond', 'epoch') + $3 * interval '1 second') AS now) t) b`,
    [
      range === null ? given : null,
      stepSeconds,
      sliceSeconds,
      range?.from ?? null,
      range?.to ?? null,
    ],
  );
  if (bounds === undefined) throw new Error('the bounds of the overview are missing');
  return bounds;
}
