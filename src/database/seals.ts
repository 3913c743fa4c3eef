// Sealing, one short transaction after the other; and what places outside have got of the chain's heads.

import type { Head } from '../model/seal-chain.js';
import type { ResolvedAuditOptions } from '../model/audit-options.js';
import type { Database, DirectQuery } from './connection.js';

type Steps = Pick<ResolvedAuditOptions, 'stretchRows' | 'delayMs' | 'everyMs'>;

/** Seals a stretch or searches some; how many rows were sealed, or null if there is nothing to do at present. */
export async function sealStep(database: Database, steps: Steps): Promise<number | null> {
  const { schema } = database;
  const { stretchRows, delayMs, everyMs } = steps;
  const [actions] = await database.query<{ rows: string | null }>(
    'seal actions',
    `SELECT ${schema}.seal_actions($1, $2 * interval '1 ms') AS rows`,
    [stretchRows, delayMs],
  );
  const [attempts] = await database.query<{ rows: string | null }>(
    'seal attempts',
    `SELECT ${schema}.seal_attempts($1, $2 * interval '1 ms', $3 * interval '1 ms') AS rows`,
    [stretchRows, delayMs, everyMs],
  );
  const rows = [actions?.rows ?? null, attempts?.rows ?? null];
  return rows.every((count) => count === null)
    ? null
    : rows.reduce((sum, count) => sum + Number(count ?? 0), 0);
}

/** Before a day of attempts is removed: seals the rest of it, and records that it expired. False: somebody is in the way. */
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
      // another one is sealing, and takes longer than we may wait
      if ((error as { code?: string }).code === '55P03') return false;
      throw error;
    }
  }
}

/** Heads from this number on, the oldest first. */
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

/** The numbers of the last head that a place has got, 0 if none, and of the last that there is. */
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
