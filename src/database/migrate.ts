// Migrations: incremental, safe under load, resumable. Every step is one transaction that records itself,
// so a run that is killed anywhere is simply run again.

import type pg from 'pg';

import { MigrationError } from '../errors.js';
import { isNewer, version } from '../version.js';
import { quoteIdentifier } from './connection.js';
import type { DatabaseOptions } from './connection.js';
import { asOwner, runTransaction, withClient } from './migration-session.js';
import { readSqlFiles } from './sql-files.js';
import type { Migration, SqlFile, SqlFiles } from './sql-files.js';
import { refuseWhileOldRelaysRun } from './versions.js';

export type HealthCheck = { name: string; ok: boolean; detail: string };
export type MigrationStep = { title: string; sql: string };
export type MigrationReport = { applied: string[]; checks: HealthCheck[] };
export type MigrationState = {
  file: string;
  state: 'applied' | 'pending' | 'changed' | 'unknown';
  /** The version of Waybill that applied it. */
  version: string | null;
  appliedAt: Date | null;
};
export type MigrateOptions = DatabaseOptions & { onStep?: (title: string) => void };

type Applied = Map<string, { checksum: string; version: string; appliedAt: Date }>;

export async function migrateUp({
  onStep,
  ...database
}: MigrateOptions = {}): Promise<MigrationReport> {
  return asOwner(database, async (client, schema) => {
    const files = readSqlFiles();
    const applied = await readApplied(client, schema);
    const steps = pendingSteps(schema, files, applied);
    const pending = files.migrations.filter((file) => !applied.has(file.name));
    if (applied.size > 0) await refuseWhileOldRelaysRun(client, schema, pending);
    for (const step of steps) {
      onStep?.(step.title);
      await runStep(client, step);
    }
    const { rows: checks } = await client.query<HealthCheck>(
      `SELECT * FROM ${schema}.health_check()`,
    );
    const failed = checks.filter((check) => !check.ok);
    if (failed.length > 0) {
      throw new MigrationError(
        `the health check failed: ${failed.map((check) => `${check.name} (${check.detail})`).join('; ')}`,
      );
    }
    return { applied: steps.map((step) => step.title), checks };
  });
}

/** The steps that `migrateUp` would run now. */
export async function planMigration(database: DatabaseOptions = {}): Promise<MigrationStep[]> {
  return withClient(database, async (client, schema) =>
    pendingSteps(schema, readSqlFiles(), await readApplied(client, schema)),
  );
}

/** The whole schema as SQL text, for those who apply it with another tool. */
export function migrationSql(schemaName: string): string {
  return pendingSteps(quoteIdentifier(schemaName), readSqlFiles(), new Map())
    .map((step) => `-- ${step.title}\nBEGIN;\n${step.sql}\nCOMMIT;\n`)
    .join('\n');
}

export async function migrationStatus(database: DatabaseOptions = {}): Promise<MigrationState[]> {
  return withClient(database, async (client, schema) => {
    const applied = await readApplied(client, schema);
    const { migrations, definitions } = readSqlFiles();
    const known = [...migrations, ...definitions].map((file): MigrationState => {
      const record = applied.get(file.name);
      const state =
        record === undefined
          ? 'pending'
          : record.checksum === file.checksum
            ? 'applied'
            : 'changed';
      const { version: appliedBy = null, appliedAt = null } = record ?? {};
      return { file: file.name, state, version: appliedBy, appliedAt };
    });
    const unknown = [...applied]
      .filter(([name]) => !known.some((entry) => entry.file === name))
      .map(([file, record]): MigrationState => ({
        file,
        state: 'unknown',
        version: record.version,
        appliedAt: record.appliedAt,
      }));
    return [...known, ...unknown];
  });
}

/** Takes the last migration back. Refuses while messages wait, unless it is forced. */
export async function migrateDown({
  force = false,
  ...database
}: DatabaseOptions & { force?: boolean } = {}): Promise<string | null> {
  return asOwner(database, async (client, schema) => {
    const applied = await readApplied(client, schema);
    refuseNewerSchema(schema, readSqlFiles(), applied);
    const last = readSqlFiles().migrations.findLast((file) => applied.has(file.name));
    if (last === undefined) return null;
    if (last.down === undefined)
      throw new MigrationError(`${last.name} cannot be taken back: it has no .down.sql`);
    const { rows } = await client.query<{ count: string }>(
      `SELECT (SELECT count(*) FROM ${schema}.deliveries) + (SELECT count(*) FROM ${schema}.dead_letters)
            + (SELECT coalesce(sum(remaining), 0) FROM ${schema}.leases) + (SELECT count(*) FROM ${schema}.unrouted_messages) AS count`,
    );
    const unfinished = Number(rows[0]?.count ?? 0);
    if (unfinished > 0 && !force) {
      throw new MigrationError(
        `${unfinished} messages are waiting, in flight, dead or unrouted, and would be lost: let them end first, or use --force`,
      );
    }
    const forget =
      applied.size > 0 && readSqlFiles().migrations[0] !== last
        ? `DELETE FROM applied_files WHERE file = '${last.name}' OR file LIKE 'functions/%' OR file LIKE 'views/%';`
        : '';
    await runStep(client, {
      title: last.name,
      sql: `${searchPath(schema)}\n${forget}\n${last.down}`,
    });
    return last.name;
  });
}

/** What a newer version has made is not taken back by an older one, function by function, unnoticed. */
function refuseNewerSchema(schema: string, files: SqlFiles, applied: Applied): void {
  const known = new Set(files.migrations.map((file) => file.name));
  const unknown = [...applied.keys()].filter(
    (name) => name.startsWith('migrations/') && !known.has(name),
  );
  if (unknown.length > 0) {
    throw new MigrationError(
      `the schema ${schema} is newer than this version of Waybill (it has ${unknown.join(', ')}): upgrade Waybill first`,
    );
  }
  const newest = [...applied.values()]
    .map((record) => record.version)
    .reduce((one, other) => (isNewer(other, one) ? other : one), version);
  if (newest !== version) {
    throw new MigrationError(
      `the schema ${schema} was last migrated by Waybill ${newest}, and this is Waybill ${version}: upgrade it to ${newest} or newer`,
    );
  }
}

function pendingSteps(schema: string, files: SqlFiles, applied: Applied): MigrationStep[] {
  refuseNewerSchema(schema, files, applied);
  const steps: MigrationStep[] = [];
  for (const file of files.migrations) {
    const record = applied.get(file.name);
    if (record?.checksum === file.checksum) continue;
    if (record !== undefined) {
      throw new MigrationError(
        `${file.name} was applied to the schema ${schema} with other contents: a migration never changes once it was released`,
      );
    }
    steps.push({
      title: file.name,
      sql: [
        bookkeeping(schema),
        searchPath(schema),
        file.text,
        recordFile(file),
        files.privileges.text,
      ].join('\n'),
    });
  }
  const changed = files.definitions.filter(
    (file) => applied.get(file.name)?.checksum !== file.checksum,
  );
  if (changed.length > 0) {
    steps.push({
      title:
        changed.length === files.definitions.length
          ? 'functions and views'
          : changed.map((file) => file.name).join(', '),
      sql: [
        bookkeeping(schema),
        // bodies name each other: the order of the files is then free
        `${searchPath(schema)}\nSET LOCAL check_function_bodies = off;`,
        ...changed.map((file) => `${file.text}\n${recordFile(file)}`),
        files.privileges.text,
        'SELECT apply_rights();',
      ].join('\n'),
    });
  }
  steps.push({
    title: 'partitions',
    sql: `${searchPath(schema)}\nSELECT make_partitions();\n${files.privileges.text}\nSELECT apply_rights();`,
  });
  return steps;
}

function bookkeeping(schema: string): string {
  // asked first: CREATE SCHEMA IF NOT EXISTS wants a right on the database that the owner of the schema need not have
  const literal = (text: string) => `'${text.replaceAll("'", "''")}'`;
  return `DO $do$ BEGIN
  IF to_regnamespace(${literal(schema)}) IS NULL THEN EXECUTE 'CREATE SCHEMA ' || ${literal(schema)}; END IF;
END $do$;
CREATE TABLE IF NOT EXISTS ${schema}.applied_files (
  file text PRIMARY KEY, checksum text NOT NULL, version text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), works_with text);
DO $do$ BEGIN
  -- made by 0.1.0, which did not have it; asked first, for the lock that it takes
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = ${literal(`${schema}.applied_files`)}::regclass AND attname = 'works_with') THEN
    ALTER TABLE ${schema}.applied_files ADD COLUMN works_with text;
  END IF;
END $do$;`;
}

function searchPath(schema: string): string {
  return `SET LOCAL search_path = ${schema}, pg_temp;`;
}

function recordFile(file: SqlFile | Migration): string {
  const worksWith = 'worksWith' in file && file.worksWith !== null ? `'${file.worksWith}'` : 'NULL';
  return `INSERT INTO applied_files (file, checksum, version, works_with) VALUES ('${file.name}', '${file.checksum}', '${version}', ${worksWith})
ON CONFLICT (file) DO UPDATE SET checksum = excluded.checksum, version = excluded.version,
  applied_at = excluded.applied_at, works_with = excluded.works_with;`;
}

async function readApplied(client: pg.Client, schema: string): Promise<Applied> {
  const table = `${schema}.applied_files`;
  const { rows: found } = await client.query<{ exists: boolean }>(
    'SELECT to_regclass($1) IS NOT NULL AS exists',
    [table],
  );
  if (!found[0]?.exists) return new Map();
  const { rows } = await client.query<{
    file: string;
    checksum: string;
    version: string;
    appliedAt: Date;
  }>(`SELECT file, checksum, version, applied_at AS "appliedAt" FROM ${table}`);
  return new Map(rows.map(({ file, ...record }) => [file, record]));
}

async function runStep(client: pg.Client, step: MigrationStep): Promise<void> {
  await runTransaction(client, step.title, () => client.query(step.sql));
}
