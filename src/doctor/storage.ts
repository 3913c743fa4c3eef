// Doctor checks of tables, indexes and partitions: whether dead rows pile up, whether every index exists and is
// valid, and whether there are partitions for the coming days.

import { readApplied } from './applied.js';
import { counted, failure, listed, ok, readRow, warning } from './check.js';
import type { Check } from './check.js';

/** Tables whose rows every message inserts, updates or deletes; the others get few dead rows. */
const hotTables = ['deliveries', 'lanes', 'lane_tickets', 'leases', 'listeners', 'cursors', 'keys'];

const deadRows: Check = {
  code: 'dead_rows',
  title: 'hot tables have few dead rows',
  finds:
    'Warning when a hot table has more than 20,000 dead rows, and a fifth of the living ones: ten times what its autovacuum begins at.',
  needs: 'schema',
  run: async ({ database, limits }) => {
    const rows = await database.query<{ name: string; dead: number; live: number; size: string }>(
      'count dead rows',
      `SELECT format('%I.%I', schemaname, relname) AS name, n_dead_tup::int AS dead, n_live_tup::int AS live,
              pg_size_pretty(pg_total_relation_size(relid)) AS size
         FROM pg_stat_all_tables
        WHERE schemaname = $1 AND relname = ANY ($2) AND n_dead_tup > $3 AND n_dead_tup > n_live_tup / 5 ORDER BY n_dead_tup DESC`,
      [database.options.schema, hotTables, limits.deadRows],
    );
    if (rows.length === 0) return ok('autovacuum keeps up');
    const shown = rows.map(
      ({ name, dead, live, size }) =>
        `${name} has ${dead} dead rows and ${live} living ones (${size})`,
    );
    return warning(
      `${listed(shown)}: claims have to skip them`,
      'If an old transaction keeps them (long_transactions, prepared_transactions, standby_feedback, replication_slots), end that first; then:',
      rows.map(({ name }) => `VACUUM (ANALYZE) ${name};`),
    );
  },
};

const indexesMissing: Check = {
  code: 'indexes_missing',
  title: 'every index is there',
  finds: 'Error when an index, a primary key or a unique constraint of the migrations is missing.',
  needs: 'schema',
  run: async (context) => {
    const { indexes } = (await readApplied(context)).declared;
    const rows = await context.database.query<{ name: string; table: string }>(
      'list indexes',
      `SELECT i.relname AS name, t.relname AS table FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
         JOIN pg_namespace n ON n.oid = i.relnamespace WHERE n.nspname = $1 AND NOT t.relispartition`,
      [context.database.options.schema],
    );
    const found = new Set(rows.map(({ name, table }) => `${table}.${name}`));
    const lost = indexes.filter(({ name, table }) => !found.has(`${table}.${name}`));
    if (lost.length === 0) return ok(`all ${indexes.length} are there`);
    return failure(
      `missing: ${listed(lost.map(({ name, table }) => `${name} on ${table}`))}`,
      'Create them again; indexes of messages and attempts block producers while they are built.',
      lost.map(({ statement }) => statement.replace('%s', () => context.schema)),
    );
  },
};

const indexesInvalid: Check = {
  code: 'indexes_invalid',
  title: 'every index is valid',
  finds:
    'Error for an invalid index, such as one whose `CREATE INDEX CONCURRENTLY` failed. Indexes that are being built are ignored.',
  needs: 'schema',
  run: async (context) => {
    const { indexes } = (await readApplied(context)).declared;
    const rows = await context.database.query<{
      plain: string;
      name: string;
      partitioned: boolean;
    }>(
      'look for invalid indexes',
      `SELECT i.relname AS plain, format('%I.%I', n.nspname, i.relname) AS name, i.relkind = 'I' AS partitioned
         FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_namespace n ON n.oid = i.relnamespace
        WHERE n.nspname = $1 AND NOT (x.indisvalid AND x.indisready)
          AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = x.indexrelid)
        ORDER BY 1`,
      [context.database.options.schema],
    );
    if (rows.length === 0) return ok('none is left from a build that failed');
    const ours = new Set(indexes.map(({ name }) => name));
    return failure(
      `not valid: ${listed(rows.map(({ plain }) => plain))}; queries do not use them, and writes pay for them`,
      'Rebuild the indexes of Waybill, and drop the others.',
      rows.map(({ plain, name, partitioned }) =>
        partitioned
          ? `REINDEX INDEX ${name};`
          : ours.has(plain)
            ? `REINDEX INDEX CONCURRENTLY ${name};`
            : `DROP INDEX CONCURRENTLY ${name};`,
      ),
    );
  },
};

const partitions: Check = {
  code: 'partitions_missing',
  title: 'there are partitions for 30 days ahead',
  finds:
    'Warning when a day of the next 30 has no partition; error when today or tomorrow has none.',
  needs: 'schema',
  run: async ({ database, schema }) => {
    const rows = await database.query<{ name: string; ahead: number }>(
      'look for partitions',
      `SELECT t.name || to_char(d, '_YYYYMMDD') AS name, d::date - (now() AT TIME ZONE 'UTC')::date AS ahead
         FROM generate_series((now() AT TIME ZONE 'UTC')::date::timestamp, (now() AT TIME ZONE 'UTC')::date + 29, '1 day') d,
              (VALUES ('messages'), ('attempts')) t(name)
        WHERE NOT EXISTS (SELECT FROM ${schema}.partition_bounds(format('%I.%I', $1::text, t.name)::regclass) b
                           WHERE b.day = d::date)
        ORDER BY d, t.name`,
      [database.options.schema],
    );
    if (rows.length === 0) return ok('none of the next 30 days lacks one');
    const urgent = rows.some(({ ahead }) => ahead <= 1);
    return (urgent ? failure : warning)(
      `missing: ${listed(rows.map(({ name }) => name))}; without them messages cannot be enqueued on that day`,
      'Make them, and find out why no relay does (every relay makes them 60 days ahead, every 10 minutes).',
      [`SELECT ${schema}.make_partitions();`],
    );
  },
};

const defaultPartition: Check = {
  code: 'default_partition',
  title: 'there is no default partition',
  finds:
    'Warning for a default partition, which keeps expired days from being removed; error when it has rows, which keep the partition of their day from being made.',
  needs: 'schema',
  run: async ({ database, schema }) => {
    const rows = await database.query<{ parent: string; name: string; id: string }>(
      'look for default partitions',
      `SELECT format('%I.%I', n.nspname, c.relname) AS parent, format('%I.%I', dn.nspname, d.relname) AS name,
              CASE c.relname WHEN 'messages' THEN 'id' ELSE 'message_id' END AS id
         FROM pg_partitioned_table p JOIN pg_class c ON c.oid = p.partrelid JOIN pg_namespace n ON n.oid = c.relnamespace
         JOIN pg_class d ON d.oid = p.partdefid JOIN pg_namespace dn ON dn.oid = d.relnamespace
        WHERE n.nspname = $1 ORDER BY 1`,
      [database.options.schema],
    );
    if (rows.length === 0) return ok('none exists');
    const full: string[] = [];
    for (const { name } of rows) {
      const { filled } = await readRow<{ filled: boolean }>(
        database,
        'look into the default partition',
        `SELECT EXISTS (SELECT FROM ${name}) AS filled`,
      );
      if (filled) full.push(name);
    }
    const found = `${counted(rows.length, 'default partition')}: ${listed(rows.map(({ name }) => name))}`;
    return (full.length > 0 ? failure : warning)(
      full.length > 0
        ? `${found}, with rows in ${listed(full)}; the days of these rows get no partition`
        : `${found}; expired days cannot be removed while it is there`,
      'Detach it, make the partitions, and move its rows into them, in one transaction.',
      rows.map(({ parent, name, id }) =>
        [
          'BEGIN;',
          `ALTER TABLE ${parent} DETACH PARTITION ${name};`,
          `SELECT ${schema}.make_partitions(p_from => (SELECT min(${schema}.id_time(${id}))::date FROM ${name}));`,
          `INSERT INTO ${parent} SELECT * FROM ${name};`,
          `DROP TABLE ${name};`,
          'COMMIT;',
        ].join(' '),
      ),
    );
  },
};

export const storageChecks = [
  deadRows,
  indexesMissing,
  indexesInvalid,
  partitions,
  defaultPartition,
];
