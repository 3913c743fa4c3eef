// Watched tables. Creating a trigger waits for open transactions that write to the table. It waits two seconds at most,
// so that other writers do not queue behind it for long, and is retried.

import { setTimeout as pause } from 'node:timers/promises';

import { ConfigurationError } from '../../core/errors.js';
import type { ResolvedWatch } from './watch.js';
import type { Database } from '../../database/connection.js';
import type { DefinitionChange } from '../applications/database.js';

export type WatchReport = {
  table: string;
  topic: string;
  events: string[];
  columns: string[];
  when: string[] | null;
  key: string | null;
  tenant: string | null;
  truncate: string;
  /** The applications that declare it, or `sql`. */
  owners: string[];
  problem: string | null;
};

const lockAttempts = 30;
const lockPauseMs = 200;

/** Creates the watch, or changes it as given; returns the statements that it ran, or would run. */
export async function defineWatch(
  database: Database,
  watch: ResolvedWatch,
  { dryRun, actor, owner = 'sql' }: { dryRun: boolean; actor?: string; owner?: string },
): Promise<string[]> {
  const rows = await alter<{ statement: string }>(
    database,
    'watch',
    `SELECT statement FROM ${database.schema}.define_watch(
       ${as('$4')} ${database.schema}.named_table($1) END, $2::text::jsonb, $5, $3) AS statement`,
    [watch.table, JSON.stringify(watch), dryRun, actor ?? null, owner],
  );
  return rows.map((row) => row.statement);
}

/** The watches, each with the oid that its table's name resolves to in this session. */
export async function withTables(
  database: Database,
  watches: readonly ResolvedWatch[],
): Promise<object[]> {
  const [row] = await database.query<{ watches: object[] }>(
    'find watched tables',
    `SELECT ${watchesFrom(database, '$1')} AS watches`,
    [JSON.stringify(watches)],
  );
  return row?.watches ?? [];
}

/** SQL for the watches of a JSON text, each with the oid of its table. */
function watchesFrom({ schema }: Database, parameter: string): string {
  return `(SELECT coalesce(jsonb_agg(w || jsonb_build_object('tableId', ${schema}.named_table(w ->> 'table')::oid) ORDER BY n), '[]')
             FROM jsonb_array_elements(${parameter}::text::jsonb) WITH ORDINALITY AS given(w, n))`;
}

/** The relay whose declaration the watches belong to. */
export type WatchDeclaration = { application: string; relayId: string };

/** Declares the watches of a relay, and creates missing ones. */
export async function syncWatches(
  database: Database,
  watches: ResolvedWatch[],
  { application, relayId }: WatchDeclaration,
  actor?: string,
): Promise<DefinitionChange[]> {
  const [row] = await alter<{ changes: DefinitionChange[] }>(
    database,
    'sync watches',
    `SELECT ${database.schema}.sync_watches(${as('$2')} ${watchesFrom(database, '$1')} END, $3, $4) AS changes`,
    [JSON.stringify(watches), actor ?? null, application, relayId],
  );
  return row?.changes ?? [];
}

/** Reconciles an application's watches: creates and ends them as its running relays declare. */
export async function reconcileWatches(
  database: Database,
  relayId: string,
  actor: string,
): Promise<void> {
  await alter(
    database,
    'reconcile watches',
    `SELECT ${database.schema}.reconcile_watches(${as('$2')} $1::uuid END)`,
    [relayId, actor],
  );
}

/** Sets the actor for this transaction, before the following argument is evaluated. */
function as(parameter: string): string {
  return `CASE WHEN set_config('waybill.actor', coalesce(${parameter}::text, ''), true) IS NOT NULL THEN`;
}

/** Adds the triggers to new partitions of watched tables; returns the number of partitions. */
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
            when_changed AS "when", key, tenant, truncate, owners, problem
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
