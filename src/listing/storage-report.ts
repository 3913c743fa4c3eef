// Storage report: the state of the database as far as an outbox depends on it (sizes, dead rows, old transactions).

import type { Database } from '../database/connection.js';

export type TableReport = {
  table: string;
  partitions: number;
  /** With indexes and out-of-line values. */
  bytes: string;
  /** An estimate of the statistics collector. */
  rows: string;
  deadRows: string;
  lastVacuumAt: Date | null;
};

/** The size of one day. */
export type DayReport = {
  day: string;
  messageBytes: string;
  attemptBytes: string;
  /** Estimates of the statistics collector. */
  messages: string;
  attempts: string;
};

export type StorageReport = {
  version: string;
  schema: string;
  databaseBytes: string;
  partitionDaysAhead: number;
  /** Seconds for which the oldest open transaction of this database has been open. */
  oldestTransactionSeconds: number | null;
  /** Transactions since the oldest snapshot in use: dead rows that are newer cannot be removed. */
  oldestSnapshotAge: number | null;
  tables: TableReport[];
  /** The days up to today, the newest first, at most 100. */
  days: DayReport[];
};

export async function readStorage(database: Database): Promise<StorageReport> {
  const { schema } = database;
  const [report] = await database.query<Omit<StorageReport, 'tables' | 'days'>>(
    'read storage',
    `SELECT current_setting('server_version') AS version, $1::text AS schema, pg_database_size(current_database())::text AS "databaseBytes",
            ${schema}.partition_days_ahead() AS "partitionDaysAhead",
            (SELECT extract(epoch FROM clock_timestamp() - min(xact_start))::float8 FROM pg_stat_activity
              WHERE datname = current_database() AND pid <> pg_backend_pid()) AS "oldestTransactionSeconds",
            (SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()) AS "oldestSnapshotAge"`,
    [database.options.schema],
  );
  const tables = await database.query<TableReport>(
    'read tables',
    // not from pg_stat_all_tables, which would be computed once for each table
    `SELECT c.relname AS table, (count(s.oid) FILTER (WHERE c.relkind = 'p'))::int AS partitions, coalesce(sum(s.bytes), 0)::text AS bytes,
            coalesce(sum(pg_stat_get_live_tuples(s.oid)), 0)::text AS rows, coalesce(sum(pg_stat_get_dead_tuples(s.oid)), 0)::text AS "deadRows",
            max(greatest(pg_stat_get_last_vacuum_time(s.oid), pg_stat_get_last_autovacuum_time(s.oid))) AS "lastVacuumAt"
       FROM pg_class c
       LEFT JOIN LATERAL (
         SELECT x.oid, pg_total_relation_size(x.oid) AS bytes FROM (
           SELECT c.oid WHERE c.relkind = 'r'
           UNION ALL
           SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = c.oid AND c.relkind = 'p') x(oid) OFFSET 0) s ON true
      WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      GROUP BY c.relname ORDER BY sum(s.bytes) DESC NULLS LAST`,
    [schema],
  );
  if (report === undefined) throw new Error('the database gave no answer');
  const days = await database.query<DayReport>(
    'read days',
    `SELECT b.day::text AS day, coalesce(sum(pg_total_relation_size(b.partition)) FILTER (WHERE b.parent = 'messages'), 0)::text AS "messageBytes",
            coalesce(sum(pg_total_relation_size(b.partition)) FILTER (WHERE b.parent = 'attempts'), 0)::text AS "attemptBytes",
            coalesce(sum(s.n_live_tup) FILTER (WHERE b.parent = 'messages'), 0)::text AS messages,
            coalesce(sum(s.n_live_tup) FILTER (WHERE b.parent = 'attempts'), 0)::text AS attempts
       FROM (SELECT 'messages' AS parent, x.* FROM ${schema}.partition_bounds(($1 || '.messages')::regclass) x
             UNION ALL
             SELECT 'attempts', x.* FROM ${schema}.partition_bounds(($1 || '.attempts')::regclass) x) b
       LEFT JOIN pg_stat_all_tables s ON s.relid = b.partition
      WHERE b.day <= (statement_timestamp() AT TIME ZONE 'UTC')::date
      GROUP BY b.day ORDER BY b.day DESC LIMIT 100`,
    [schema],
  );
  return { ...report, tables, days };
}
