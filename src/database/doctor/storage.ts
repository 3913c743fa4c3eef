// Tables, indexes and partitions: whether dead rows pile up, whether the indexes that claims live on are there
// and valid, and whether there is a place for tomorrow's messages.

import { readApplied } from './applied.js';
import { counted, failure, listed, ok, readRow, warning } from './check.js';
import type { Check } from './check.js';

/** Rows come and go here by the thousand; everything else is only added to. */
const hotTables = [
  'deliveries',
  'lanes',
  'lane_tickets',
  'leases',
  'doorbells',
  'cursors',
  'streams',
];

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
    if (rows.length === 0) return ok('dead rows are removed as they come');
    const shown = rows.map(
      ({ name, dead, live, size }) =>
        `${name} has ${dead} dead rows and ${live} living ones (${size})`,
    );
    return warning(
      `${listed(shown)}: claims look through them`,
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
  run: async (patient) => {
    const { indexes } = (await readApplied(patient)).declared;
    const rows = await patient.database.query<{ name: string; table: string }>(
      'list indexes',
      `SELECT i.relname AS name, t.relname AS table FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
         JOIN pg_namespace n ON n.oid = i.relnamespace WHERE n.nspname = $1 AND NOT t.relispartition`,
      [patient.database.options.schema],
    );
    const found = new Set(rows.map(({ name, table }) => `${table}.${name}`));
    const lost = indexes.filter(({ name, table }) => !found.has(`${table}.${name}`));
    if (lost.length === 0) return ok(`all ${indexes.length} are there`);
    return failure(
      `missing: ${listed(lost.map(({ name, table }) => `${name} on ${table}`))}`,
      'Make them again; those of messages and attempts hold up producers while they are built.',
      lost.map(({ statement }) => statement.replace('%s', () => patient.schema)),
    );
  },
};

const indexesInvalid: Check = {
  code: 'indexes_invalid',
  title: 'every index is valid',
  finds:
    'Error for an index that is not valid, such as one whose `CREATE INDEX CONCURRENTLY` failed; not for those that are being built.',
  needs: 'schema',
  run: async (patient) => {
    const { indexes } = (await readApplied(patient)).declared;
    const rows = await patient.database.query<{
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
      [patient.database.options.schema],
    );
    if (rows.length === 0) return ok('none is left from a build that failed');
    const ours = new Set(indexes.map(({ name }) => name));
    return failure(
      `not valid: ${listed(rows.map(({ plain }) => plain))}; queries do not use them, and writes pay for them`,
      'Build again what belongs to Waybill, drop the rest.',
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
      'Make them, and find out why no relay does (every relay makes them 60 days ahead, every hour).',
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
      'Take it out, make the partitions, and put what rows it has where they belong, in one transaction.',
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
