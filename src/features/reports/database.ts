// Database calls of the reports: relays fill the counts, and a report reads those of a period.

import type { Database } from '../../database/connection.js';

/** Rows of a piece of messages, and of one of attempts. Decision 53 has the time that counting them takes. */
const pieceRows = 100_000;

/** Counts pieces until everything is counted or the time is over; returns whether more is left. */
export async function fillReports(database: Database, forMs: number): Promise<boolean> {
  const startedMs = performance.now();
  for (;;) {
    const [row] = await database.query<{ more: boolean }>(
      'fill reports',
      `SELECT ${database.schema}.fill_reports($1) AS more`,
      [pieceRows],
    );
    if (row?.more !== true) return false;
    if (performance.now() - startedMs > forMs) return true;
  }
}

export const reportKinds = { topics: 'topic', tenants: 'tenant', destinations: 'destination' };
export type ReportBy = keyof typeof reportKinds;

/** The period as it is counted: whole slices. `completeTo`: everything before it is counted; null: nothing is yet. */
export type CountedPeriod = { from: Date; to: Date; completeTo: Date | null };

/** `name`: null for all others together; '' for messages without a tenant. `histogram`: see percentiles.ts. */
export type Counted = {
  name: string | null;
  /** Messages, or of a destination, tries. */
  count: number;
  delivered: number;
  failed: number;
  dead: number;
  histogram: string;
};

export async function countPeriod(
  database: Database,
  by: ReportBy,
  { from, to }: { from: Date; to: Date },
): Promise<CountedPeriod> {
  const [row] = await database.query<CountedPeriod>(
    'read report period',
    `SELECT min(since) AS "from", max(until) AS "to", nullif(min(complete_to), '-infinity') AS "completeTo"
       FROM ${database.schema}.report_slices($1, $2, $3)`,
    [by === 'destinations' ? 'attempts' : 'messages', from, to],
  );
  return row ?? { from, to, completeTo: null };
}

/** At most 1,000 names, and the others together. `name`: only this one. */
export async function readCounts(
  database: Database,
  by: ReportBy,
  { from, to }: { from: Date; to: Date },
  name: string | null,
): Promise<Counted[]> {
  return database.query<Counted>(
    'read report',
    `SELECT name, count::float8 AS count, delivered::float8 AS delivered, failed::float8 AS failed,
            dead::float8 AS dead, histogram
       FROM ${database.schema}.report_rows($1, $2, $3, $4)`,
    [reportKinds[by], from, to, name],
  );
}
