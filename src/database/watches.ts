// Watched tables. Making a trigger waits for open transactions that write to the table, two seconds at most
// so that nobody queues behind it for long, and is tried again.

import { setTimeout as pause } from 'node:timers/promises';

import { ConfigurationError } from '../errors.js';
import type { ResolvedWatch } from '../model/watch.js';
import type { Database } from './connection.js';

export type WatchReport = {
  table: string;
  topic: string;
  events: string[];
  columns: string[];
  when: string[] | null;
  key: string | null;
  tenant: string | null;
  truncate: string;
  configured: boolean;
  problem: string | null;
};

const lockAttempts = 30;
const lockPauseMs = 200;

/** Makes the watch, or changes it to be as given; returns the statements that it took, or would take. */
export async function defineWatch(
  database: Database,
  watch: ResolvedWatch,
  { dryRun, actor }: { dryRun: boolean; actor?: string },
): Promise<string[]> {
  const rows = await alter<{ statement: string }>(
    database,
    'watch',
    `SELECT statement FROM ${database.schema}.define_watch(
       ${as('$4')} ${database.schema}.named_table($1) END, $2::text::jsonb, false, $3) AS statement`,
    [watch.table, JSON.stringify(watch), dryRun, actor ?? null],
  );
  return rows.map((row) => row.statement);
}

/** Makes the watches of the configuration, and ends those that left it; the ones made by hand stay. */
export async function syncWatches(
  database: Database,
  watches: ResolvedWatch[],
  actor?: string,
): Promise<void> {
  await alter(
    database,
    'sync watches',
    `SELECT ${database.schema}.sync_watches(${as('$2')} coalesce(jsonb_agg(
        w || jsonb_build_object('tableId', ${database.schema}.named_table(w ->> 'table')::oid) ORDER BY n), '[]') END)
       FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY AS given(w, n)`,
    [JSON.stringify(watches), actor ?? null],
  );
}

/** Says for this transaction who it is that acts, before the argument that follows is used. */
function as(parameter: string): string {
  return `CASE WHEN set_config('waybill.actor', coalesce(${parameter}::text, ''), true) IS NOT NULL THEN`;
}

/** Gives new partitions of watched tables their triggers; returns how many partitions that were. */
export async function mendWatches(database: Database): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'mend watches',
    `SELECT ${database.schema}.mend_watches() AS count`,
  );
  return row?.count ?? 0;
}

/** Ends the watches of a table, or only the one with this topic; returns how many. */
export async function endWatches(
  database: Database,
  table: string,
  topic: string | null,
  actor?: string,
): Promise<number> {
  const [row] = await alter<{ count: number }>(
    database,
    'unwatch',
    `SELECT ${database.schema}.unwatch(${as('$3')} coalesce(
        (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE c.oid = ${database.schema}.named_table($1)), $1) END, $2) AS count`,
    [table, topic, actor ?? null],
  );
  return row?.count ?? 0;
}

export async function readWatches(database: Database): Promise<WatchReport[]> {
  return database.query<WatchReport>(
    'read watches',
    `SELECT watched AS "table", topic, array_remove(ARRAY[created, changed, deleted], NULL) AS events, columns,
            when_changed AS "when", key, tenant, truncate, configured, problem
       FROM ${database.schema}.watch_status ORDER BY watched, topic`,
  );
}

async function alter<Row extends object>(
  database: Database,
  what: string,
  sql: string,
  values: unknown[],
): Promise<Row[]> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await database.query<Row>(what, sql, values);
    } catch (error) {
      const { code, message, hint } = error as { code?: string; message: string; hint?: string };
      if (code === '22023')
        throw new ConfigurationError([message, hint].filter(Boolean).join('. '), { cause: error });
      if (code !== '55P03' || attempt === lockAttempts) throw error;
      await pause(lockPauseMs);
    }
  }
}
