// Report: messages of a period by topic or tenant, or deliveries by destination, sorted and with totals.

import { ConfigurationError } from '../../core/errors.js';
import type { Database } from '../../database/connection.js';
import { countPeriod, readCounts } from './database.js';
import type { Counted, CountedPeriod, ReportBy } from './database.js';
import { bucketCounts, percentileMs } from './percentiles.js';

export const reportedBy = ['topics', 'tenants', 'destinations'] as const satisfies ReportBy[];

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
/** The longest period: a report reads at most so many days. */
const mostDays = 31;

const periodMs = { '1h': hourMs, '24h': dayMs, '7d': 7 * dayMs, '30d': 30 * dayMs };
export type PeriodName = keyof typeof periodMs;
export const periodNames = Object.keys(periodMs) as PeriodName[];

/** A report has at most 1,000 names, the largest ones, and one row for all others together. */
export const mostRows = 1001;
/** Of a table or a JSON object; CSV has all rows, because a file does not show that some are left out. */
export const defaultRows = (isCsv: boolean): number => (isCsv ? mostRows : 100);

export type Period = { from: Date; to: Date };

/** `name`: '' for messages without a tenant; null for all others together. */
export type CountRow = {
  name: string | null;
  messages: number;
  perSecond: number | null;
};
export type DestinationRow = {
  name: string | null;
  tries: number;
  perSecond: number | null;
  delivered: number;
  failed: number;
  dead: number;
  /** Of the deliveries that ended, the share that was delivered; null if none ended. */
  deliveryRate: number | null;
  /** Of the tries, the share that succeeded; null if there were none. */
  successRate: number | null;
  /** From the enqueue to the delivery, off by at most a fifth plus 1.2 ms; null without deliveries. */
  p50Ms: number | null;
  p95Ms: number | null;
  p99Ms: number | null;
};
export type ReportRow = CountRow | DestinationRow;

export type Report = CountedPeriod & {
  by: ReportBy;
  rows: ReportRow[];
  /** How many rows the limit leaves out. */
  hidden: number;
  /** Of all rows, hidden ones too. */
  total: Omit<CountRow, 'name'> | Omit<DestinationRow, 'name'>;
};

/** The columns, in the order in which they are shown. */
export const columnsOf: Record<ReportBy, readonly string[]> = {
  topics: ['name', 'messages', 'perSecond'],
  tenants: ['name', 'messages', 'perSecond'],
  destinations: [
    'name',
    'tries',
    'perSecond',
    'delivered',
    'failed',
    'dead',
    'deliveryRate',
    'successRate',
    'p50Ms',
    'p95Ms',
    'p99Ms',
  ],
};
/** The column that counts, by which rows are sorted by default. */
export const countOf = (by: ReportBy): string => (by === 'destinations' ? 'tries' : 'messages');
export const sortColumns = [...new Set(Object.values(columnsOf).flat())];

export type ReportOptions = Period & {
  /** Default: the number of messages or tries. */
  sort?: string | undefined;
  /** Default: texts ascending, numbers descending. */
  order?: 'asc' | 'desc' | undefined;
  limit: number;
  /** Only this name. */
  name?: string | null;
};

/** The chosen period. Refuses one that is empty or too long. */
export function periodOf(
  given: { period?: PeriodName | undefined; from?: Date | undefined; to?: Date | undefined },
  now: Date,
): Period {
  const { period, from, to } = given;
  if (from === undefined) {
    if (to !== undefined)
      throw new ConfigurationError(`to is ${to.toISOString()} without from: give from too`);
    return { from: new Date(now.getTime() - periodMs[period ?? '24h']), to: now };
  }
  if (period !== undefined)
    throw new ConfigurationError(`period is "${period}" beside from: give one of them`);
  const end = to ?? now;
  const lengthMs = end.getTime() - from.getTime();
  if (lengthMs <= 0)
    throw new ConfigurationError(
      `from is ${from.toISOString()}, which is not before to (${end.toISOString()}): give an earlier time`,
    );
  if (lengthMs > mostDays * dayMs)
    throw new ConfigurationError(
      `from is ${from.toISOString()}, more than ${mostDays} days before to (${end.toISOString()}): give at most ${mostDays} days`,
    );
  return { from, to: end };
}

export async function readReport(
  database: Database,
  by: ReportBy,
  { from, to, sort, order, limit, name = null }: ReportOptions,
): Promise<Report> {
  const column = sort ?? countOf(by);
  if (!columnsOf[by].includes(column))
    throw new ConfigurationError(
      `sort is "${column}", which ${by} do not have: give ${columnsOf[by].join(', ')}`,
    );
  const period = await countPeriod(database, by, { from, to });
  const counted = await readCounts(database, by, period, name);
  const seconds = secondsOf(period);
  const rows = counted.map((each) => ({
    name: each.name,
    ...(by === 'destinations' ? deliveriesOf(each, seconds) : messagesOf(each, seconds)),
  }));
  const sorted = sortRows(rows, column, order ?? (column === 'name' ? 'asc' : 'desc'));
  const total = sumOf(counted);
  return {
    by,
    ...period,
    rows: sorted.slice(0, limit),
    hidden: Math.max(sorted.length - limit, 0),
    total: by === 'destinations' ? deliveriesOf(total, seconds) : messagesOf(total, seconds),
  };
}

/** The length of the part that is counted. */
function secondsOf({ from, to, completeTo }: CountedPeriod): number {
  const end = Math.min(to.getTime(), completeTo?.getTime() ?? -Infinity);
  return Math.max((end - from.getTime()) / 1000, 0);
}

type Sums = Omit<Counted, 'name' | 'histogram'> & { buckets: number[] };

function sumOf(counted: readonly Counted[]): Sums {
  const sum: Sums = { count: 0, delivered: 0, failed: 0, dead: 0, buckets: bucketCounts('0') };
  for (const { count, delivered, failed, dead, histogram } of counted) {
    sum.count += count;
    sum.delivered += delivered;
    sum.failed += failed;
    sum.dead += dead;
    if (histogram !== '0')
      for (const [bucket, added] of bucketCounts(histogram).entries())
        sum.buckets[bucket] = (sum.buckets[bucket] ?? 0) + added;
  }
  return sum;
}

function messagesOf({ count: messages }: Pick<Counted, 'count'>, seconds: number) {
  return { messages, perSecond: seconds > 0 ? rounded(messages / seconds) : null };
}

function deliveriesOf(counted: Counted | Sums, seconds: number): Omit<DestinationRow, 'name'> {
  const { count: tries, delivered, failed, dead } = counted;
  const counts = 'buckets' in counted ? counted.buckets : bucketCounts(counted.histogram);
  return {
    tries,
    perSecond: seconds > 0 ? rounded(tries / seconds) : null,
    delivered,
    failed,
    dead,
    deliveryRate: rateOf(delivered, delivered + dead),
    successRate: rateOf(delivered, tries),
    p50Ms: percentileMs(counts, 0.5),
    p95Ms: percentileMs(counts, 0.95),
    p99Ms: percentileMs(counts, 0.99),
  };
}

const rounded = (value: number): number => Number(value.toPrecision(4));

/** Cut to six digits, so that one failure of a million does not look like none. */
function rateOf(part: number, all: number): number | null {
  return all === 0 ? null : Math.floor((part / all) * 1e6) / 1e6;
}

/** All others together come last, and before them rows without a value. */
function sortRows(rows: readonly ReportRow[], column: string, order: 'asc' | 'desc'): ReportRow[] {
  const sign = order === 'asc' ? 1 : -1;
  const valueOf = (row: ReportRow) => (row as Record<string, string | number | null>)[column];
  return rows.toSorted((one, other) => {
    if ((one.name === null) !== (other.name === null)) return one.name === null ? 1 : -1;
    const [a = null, b = null] = [valueOf(one), valueOf(other)];
    if (a === null || b === null) return a === b ? byName(one, other) : a === null ? 1 : -1;
    if (a === b) return byName(one, other);
    return a < b ? -sign : sign;
  });
}

function byName(one: ReportRow, other: ReportRow): number {
  return (one.name ?? '') < (other.name ?? '') ? -1 : 1;
}
