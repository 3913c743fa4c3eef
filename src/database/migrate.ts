// Migrations: incremental, safe under load, resumable. Every step is one transaction that records itself, so a run
// that was killed can be repeated.

import type pg from 'pg';

import { MigrationError } from '../core/errors.js';
import { isNewer, version } from '../core/version.js';
import type { DatabaseOptions } from './connection.js';
import {
  becomeOwner,
  bookkeeping,
  isInstalled,
  lockMigrations,
  runTransaction,
  withClient,
} from './migration-session.js';
import { forgetMigration, unfinishedMessages } from './migration-steps.js';
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
  return withClient(database, async (client, schema) => {
    await becomeOwner(client, schema);
    const files = readSqlFiles();
    const before = await readApplied(client, schema);
    const pending = files.migrations.filter((file) => !before.has(file.name));
    refuseNewerSchema(schema, files, before);
    if (before.size > 0) await refuseWhileOldRelaysRun(client, schema, pending);
    const applied: string[] = [];
    for (;;) {
      const [planned, ...later] = pendingSteps(schema, files, await readApplied(client, schema));
      if (planned === undefined) break;
      onStep?.(planned.title);
      if (await runStep(client, schema, planned)) applied.push(planned.title);
      if (later.length === 0) break;
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
    return { applied, checks };
  });
}

/** The steps that `migrateUp` would run now. */
export async function planMigration(database: DatabaseOptions = {}): Promise<MigrationStep[]> {
  return withClient(database, async (client, schema) =>
    pendingSteps(schema, readSqlFiles(), await readApplied(client, schema)),
  );
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

/** Reverts the last migration. Refuses while messages are unfinished, unless `force` is set. */
export async function migrateDown({
  force = false,
  ...database
}: DatabaseOptions & { force?: boolean } = {}): Promise<string | null> {
  const files = readSqlFiles();
  return withClient(database, async (client, schema) => {
    await becomeOwner(client, schema);
    const last = lastMigration(files, await readApplied(client, schema));
    if (last === undefined) return null;
    return runTransaction(client, last.name, async () => {
      await lockMigrations(client, schema);
      const applied = await readApplied(client, schema);
      refuseNewerSchema(schema, files, applied);
      if (lastMigration(files, applied) !== last) return null;
      if (last.down === undefined)
        throw new MigrationError(`${last.name} cannot be taken back: it has no .down.sql`);
      if (!force) await refuseUnfinished(client, schema);
      const forget = files.migrations[0] === last ? '' : forgetMigration(last);
      await client.query(`${searchPath(schema)}\n${forget}\n${last.down}`);
      return last.name;
    });
  });
}

function lastMigration({ migrations }: SqlFiles, applied: Applied): Migration | undefined {
  return migrations.findLast((file) => applied.has(file.name));
}

async function refuseUnfinished(client: pg.Client, schema: string): Promise<void> {
  await client.query(searchPath(schema));
  const { rows } = await client.query<{ count: string }>(`SELECT (${unfinishedMessages}) AS count`);
  const unfinished = Number(rows[0]?.count ?? 0);
  if (unfinished > 0) {
    throw new MigrationError(
      `${unfinished} messages are pending, in flight, dead or unrouted, and would be lost: let them end first, or use --force`,
    );
  }
}

/** Without this check, an older version would silently replace the functions of a newer one. */
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
        // function bodies refer to each other, so without this check the order of the files would matter
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
  if (!(await isInstalled(client, schema))) return new Map();
  const { rows } = await client.query<{
    file: string;
    checksum: string;
    version: string;
    appliedAt: Date;
  }>(`SELECT file, checksum, version, applied_at AS "appliedAt" FROM ${schema}.applied_files`);
  return new Map(rows.map(({ file, ...record }) => [file, record]));
}

/** Returns false if another run has applied the step meanwhile. */
async function runStep(
  client: pg.Client,
  schema: string,
  planned: MigrationStep,
): Promise<boolean> {
  return runTransaction(client, planned.title, async () => {
    await lockMigrations(client, schema);
    const [step] = pendingSteps(schema, readSqlFiles(), await readApplied(client, schema));
    if (step?.title !== planned.title) return false;
    await client.query(step.sql);
    return true;
  });
}
