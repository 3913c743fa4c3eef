// Bounds of charts over time: where the first interval begins, how long intervals are, and where the last one ends, all
// in complete slices of the statistics.

import { ConfigurationError } from '../core/errors.js';
import type { Database } from '../database/connection.js';

/** A time between two moments of the last 31 days. */
export type ChartRange = { from: Date; to: Date };

const keptMs = 31 * 86_400_000;

/** The range of a request, or undefined; refuses an invalid one. */
export function chartRange(from: Date | undefined, to: Date | undefined): ChartRange | undefined {
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

export type ChartBounds = {
  first: Date;
  /** The end of the last whole interval. */
  endAt: Date;
  /** The end of the last complete slice. */
  now: Date;
  stepSeconds: number;
};

/**
 * The bounds of about `points` intervals over the last minutes, or between two moments. Intervals are counted back from
 * `endAt`, in whole slices of the size that old ones are merged into.
 */
export async function readBounds(
  database: Database,
  given: number | ChartRange,
  givenPoints?: number,
): Promise<ChartBounds> {
  const range = typeof given === 'number' ? null : await untilNow(database, given);
  const minutes =
    range === null ? Number(given) : (range.to.getTime() - range.from.getTime()) / 60_000;
  const points = givenPoints ?? (minutes > 15 ? 60 : 90);
  // the size of the slices depends on their age
  const sliceSeconds = sliceOf(
    range === null ? minutes : (Date.now() - range.from.getTime()) / 60_000,
  );
  const stepSeconds = stepOf(minutes, points, sliceSeconds);
  const [bounds] = await database.query<Omit<ChartBounds, 'stepSeconds'>>(
    'read bounds of a chart',
    // the slice of the last moment is part of a range
    `SELECT b."endAt" - ceil(coalesce($1 * 60.0, extract(epoch FROM b."endAt" - $4::timestamptz)) / $2) * $2 * interval '1 second' AS first, b."endAt", b.now
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
  if (bounds === undefined) throw new Error('the bounds of the chart are missing');
  return { ...bounds, stepSeconds };
}

/** The part of a range that has begun, by the clock of the database: the length of an interval follows from it. */
async function untilNow(database: Database, { from, to }: ChartRange): Promise<ChartRange> {
  const [found] = await database.query<{ to: Date }>(
    'read bounds of a chart',
    'SELECT greatest($1::timestamptz, least($2::timestamptz, clock_timestamp())) AS to',
    [from, to],
  );
  return { from, to: found?.to ?? to };
}

/** The seconds of the largest slices that the statistics of this time are merged into. */
function sliceOf(minutes: number): number {
  return minutes > 1440 ? 600 : minutes > 60 ? 60 : 10;
}

/** The seconds of a point: a multiple of the slices, so that points are even. */
function stepOf(minutes: number, points: number, sliceSeconds: number): number {
  return sliceSeconds * Math.max(1, Math.ceil((minutes * 60) / points / sliceSeconds));
}
