// Database calls of the audit: seals in short transactions, and records which heads each sink has received.

import type { Head } from './chain.js';
import type { ResolvedAuditOptions } from './options.js';
import type { Database, DirectQuery } from '../../database/connection.js';

type Steps = Pick<ResolvedAuditOptions, 'rangeRows' | 'delayMs' | 'everyMs'>;

/**
 * Seals one range, or searches for late rows. Returns the number of sealed rows, or null if there is nothing to do.
 */
export async function sealStep(database: Database, steps: Steps): Promise<number | null> {
  const { schema } = database;
  const { rangeRows, delayMs, everyMs } = steps;
  const [actions] = await database.query<{ rows: string | null }>(
    'seal actions',
    `SELECT ${schema}.seal_actions($1, $2 * interval '1 ms') AS rows`,
    [rangeRows, delayMs],
  );
  const [attempts] = await database.query<{ rows: string | null }>(
    'seal attempts',
    `SELECT ${schema}.seal_attempts($1, $2 * interval '1 ms', $3 * interval '1 ms') AS rows`,
    [rangeRows, delayMs, everyMs],
  );
  const rows = [actions?.rows ?? null, attempts?.rows ?? null];
  return rows.every((count) => count === null)
    ? null
    : rows.reduce((sum, count) => sum + Number(count ?? 0), 0);
}

/**
 * Called before a day of attempts is removed: seals its remaining rows and records the expiry. False if another session
 * is sealing.
 */
export async function sealExpiry(
  query: DirectQuery,
  schema: string,
  day: string,
  keptDays: number,
): Promise<boolean> {
  for (;;) {
    try {
      const [row] = await query<{ done: boolean }>(
        'seal expiry',
        `SELECT ${schema}.seal_expiry($1, $2) AS done`,
        [day, keptDays],
      );
      if (row?.done !== false) return true;
    } catch (error) {
      // lock timeout or deadlock: another session is sealing and takes too long, or removes the day
      if (['55P03', '40P01'].includes((error as { code?: string }).code ?? '')) return false;
      throw error;
    }
  }
}

/** Heads after this number, oldest first. */
export async function readHeads(database: Database, after: number, limit: number): Promise<Head[]> {
  const rows = await database.query<{ number: string; head: string; sealedAt: Date }>(
    'read heads',
    `SELECT number::text AS number, head, sealed_at AS "sealedAt" FROM ${database.schema}.heads_after($1, $2)`,
    [after, limit],
  );
  return rows.map(({ number, head, sealedAt }) => ({
    number: Number(number),
    head,
    sealedAt: sealedAt.toISOString(),
  }));
}

/** `exported`: the number of the last head that this sink has received, or 0. `last`: the number of the newest head. */
export async function exportState(
  database: Database,
  sink: string,
): Promise<{ exported: number; last: number }> {
  const [row] = await database.query<{ exported: string; last: string }>(
    'read exports',
    `SELECT exported::text AS exported, last::text AS last FROM ${database.schema}.export_state($1)`,
    [sink],
  );
  return { exported: Number(row?.exported ?? 0), last: Number(row?.last ?? 0) };
}

export async function noteExport(
  database: Database,
  sink: string,
  number: number,
  error: string | null,
): Promise<void> {
  await database.query('note export', `SELECT ${database.schema}.note_export($1, $2, $3)`, [
    sink,
    number,
    error,
  ]);
}
