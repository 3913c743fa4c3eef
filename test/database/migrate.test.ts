// Migrations: incremental, resumable, safe under load, previewable as SQL, reversible, and ended by a health check that
// really fails when something is wrong.

import pg from 'pg';
import { describe, expect, it } from 'vitest';

import {
  migrateDown,
  migrateUp,
  migrationStatus,
  planMigration,
} from '../../src/database/migrate.js';
import type { MigrateOptions } from '../../src/database/migrate.js';
import { installRoles } from '../../src/database/roles.js';
import { version } from '../../src/core/version.js';
import { inventory as inventoryOf } from '../support/inventory.js';
import { rolePrefix } from '../support/logins.js';
import { only } from '../support/only.js';
import { enqueueMany } from '../support/outbox.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ allPartitions: true });
const schema = db.schema;
const here = (): MigrateOptions => ({ url: db.url, schema });

/** A database of the test, migrated or empty. */
async function makeDatabase(
  kind: 'empty' | 'migrated',
): Promise<{ options: MigrateOptions; client: pg.Client }> {
  const { url, client } = await otherDatabase(kind);
  return { options: { url, schema }, client };
}

const inventory = (client: Pick<pg.Client, 'query'>) => inventoryOf(client, db.quoted);

async function schemaExists(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ exists: boolean }>(
    'SELECT to_regnamespace($1) IS NOT NULL AS exists',
    [db.quoted],
  );
  return only(rows).exists;
}

describe('up', () => {
  it('N12 a migration ends with a health check that reports what it verified', async () => {
    const { checks } = await migrateUp(here());
    expect(checks.map((check) => check.name)).toEqual(
      expect.arrayContaining(['server', 'tables', 'indexes', 'partitions', 'privileges']),
    );
    for (const check of checks) expect(check).toMatchObject({ ok: true });
  });

  it('N12 a second run changes nothing', async () => {
    const before = await inventory(db.pool);
    const { applied } = await migrateUp(here());
    expect(applied).toEqual(['partitions']);
    expect(await inventory(db.pool)).toEqual(before);
  });

  it('N12 concurrent runs wait for each other, and each step is applied once', async () => {
    const { options, client } = await makeDatabase('empty');
    const reports = await Promise.all([1, 2, 3].map(() => migrateUp(options)));
    const applied = reports.flatMap((report) => report.applied);
    // the runs take the lock in turn, so one may apply the first step and another the second
    expect(applied.filter((title) => title !== 'partitions').toSorted()).toEqual([
      'functions and views',
      'migrations/0001_storage.sql',
    ]);
    await installRoles(options, rolePrefix);
    expect(await inventory(client)).toEqual(await inventory(db.pool));
  });

  it('N12 a function whose text changed is applied again, and nothing else', async () => {
    await db.query(
      `UPDATE ${db.quoted}.applied_files SET checksum = 'old' WHERE file = 'functions/retry.sql'`,
    );
    await db.query(
      `CREATE OR REPLACE FUNCTION ${db.quoted}.retry_delay(p_base_ms bigint, p_max_ms bigint, p_delays_ms bigint[], p_tries int)
       RETURNS interval LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ SELECT interval '1 year' $$`,
    );
    expect((await migrateUp(here())).applied).toEqual(['functions/retry.sql', 'partitions']);
    const { rows } = await db.query<{ delay: string }>(
      `SELECT ${db.quoted}.retry_delay(0, 0, '{7}', 1)::text AS delay`,
    );
    expect(only(rows).delay).toBe('00:00:00.007');
  });
});

describe('the plan and the status', () => {
  it('N12 the plan shows the steps without running them', async () => {
    const { options, client } = await makeDatabase('empty');
    const steps = await planMigration(options);
    expect(steps.map((step) => step.title)).toEqual([
      'migrations/0001_storage.sql',
      'functions and views',
      'partitions',
    ]);
    expect(steps[0]?.sql).toContain('CREATE TABLE messages');
    expect(await schemaExists(client)).toBe(false);
    const status = await migrationStatus(options);
    expect(new Set(status.map((file) => file.state))).toEqual(new Set(['pending']));
  });

  it('N12 a migration that was changed after it was applied is refused', async () => {
    const file = 'migrations/0001_storage.sql';
    const { rows } = await db.query<{ checksum: string }>(
      `SELECT checksum FROM ${db.quoted}.applied_files WHERE file = $1`,
      [file],
    );
    const update = `UPDATE ${db.quoted}.applied_files SET checksum = $2 WHERE file = $1`;
    await db.query(update, [file, 'another']);
    await expect(migrateUp(here())).rejects.toThrow(
      /0001_storage.sql was applied .* other contents/,
    );
    const status = await migrationStatus(here());
    expect(status.find((entry) => entry.file === file)?.state).toBe('changed');
    await db.query(update, [file, only(rows).checksum]);
    await migrateUp(here());
  });

  it('N12 a schema that is newer than the program is refused', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.applied_files VALUES ('migrations/9999_later.sql', 'x', '0.0.1')`,
    );
    await expect(migrateUp(here())).rejects.toThrow(/newer than this version.*9999_later/);
    const status = await migrationStatus(here());
    expect(status.find((entry) => entry.file.includes('9999'))?.state).toBe('unknown');
    await db.query(
      `DELETE FROM ${db.quoted}.applied_files WHERE file = 'migrations/9999_later.sql'`,
    );
  });
});

describe('a schema that another version has migrated', () => {
  const file = 'functions/retry.sql';
  /** As another version would have left it: with another text of one function. */
  async function leaveBy(other: string): Promise<void> {
    const { rowCount } = await db.query(
      `UPDATE ${db.quoted}.applied_files SET checksum = 'other', version = $2 WHERE file = $1`,
      [file, other],
    );
    expect(rowCount).toBe(1);
  }
  const recorded = async () => (await migrationStatus(here())).find((entry) => entry.file === file);

  it('N12 a newer one is not changed, and the error names both versions and the remedy', async () => {
    await leaveBy('99.10.0');
    const before = await inventory(db.pool);
    const refusal = {
      code: 'migration_refused',
      message: `the schema ${db.quoted} was last migrated by Waybill 99.10.0, and this is Waybill ${version}: upgrade it to 99.10.0 or newer`,
    };
    await expect(migrateUp(here())).rejects.toMatchObject(refusal);
    await expect(planMigration(here())).rejects.toMatchObject(refusal);
    await expect(migrateDown({ ...here(), force: true })).rejects.toMatchObject(refusal);
    expect(await recorded()).toMatchObject({ state: 'changed', version: '99.10.0' });
    expect(await inventory(db.pool)).toEqual(before);
  });

  it.each([
    ['an older one is migrated', '0.0.9'],
    ['one with the same number is migrated like any other change', version],
  ])('N12 %s', async (_what, other) => {
    await leaveBy(other);
    expect((await migrateUp(here())).applied).toEqual([file, 'partitions']);
    expect(await recorded()).toMatchObject({ state: 'applied', version });
  });
});

describe('down', () => {
  it('N12 a migration is not reverted while messages are pending, unless it is forced', async () => {
    const { options, client } = await makeDatabase('migrated');
    await client.query(`SELECT ${db.quoted}.define_destination('crm')`);
    await client.query(
      `INSERT INTO ${db.quoted}.routes (destination_id, topic) SELECT id, '*' FROM ${db.quoted}.destinations`,
    );
    await enqueueMany(db, client, [{ topic: 't' }, { topic: 't' }]);
    await expect(migrateDown(options)).rejects.toThrow(/2 messages are pending.*--force/);
    expect(await schemaExists(client)).toBe(true);
    const file = 'migrations/0001_storage.sql';
    expect(await migrateDown({ ...options, force: true })).toBe(file);
    expect(await schemaExists(client)).toBe(false);
    expect(await migrateDown(options), 'nothing is left').toBeNull();
    await migrateUp(options);
    expect(await migrateDown(options), 'with nothing pending').toBe(file);
  });

  it('N12 a reverted migration can be applied again with the same result', async () => {
    const { options, client } = await makeDatabase('migrated');
    const before = await inventory(client);
    expect(await migrateDown(options)).toBe('migrations/0001_storage.sql');
    expect(await schemaExists(client)).toBe(false);
    expect((await migrateUp(options)).applied).toContain('migrations/0001_storage.sql');
    await installRoles(options, rolePrefix);
    expect(await inventory(client)).toEqual(before);
  });
});

describe('under load', () => {
  it('N12 a step waits no longer than the lock timeout, then lets others pass and tries again', async () => {
    const { options, client } = await makeDatabase('migrated');
    const { rows } = await client.query<{ name: string }>(
      `SELECT max(c.relname) AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = '${db.quoted}.attempts'::regclass`,
    );
    await client.query(`DROP TABLE ${db.quoted}.${only(rows).name}`);
    await client.query('BEGIN');
    await client.query(`LOCK TABLE ${db.quoted}.attempts IN SHARE UPDATE EXCLUSIVE MODE`);

    const running = migrateUp(options);
    const watcher = new pg.Client({ connectionString: options.url ?? '' });
    await watcher.connect();
    const look = async () => {
      const { rows: found } = await watcher.query<{ pid: number; began: Date | null }>(
        `SELECT pid, xact_start AS began FROM pg_stat_activity
          WHERE application_name = 'waybill migrate' AND datname = current_database()
            AND cardinality(pg_blocking_pids(pid)) > 0`,
      );
      return found[0];
    };
    const first = await waitFor(look, { what: 'the migration to wait for the lock' });
    const second = await waitFor(
      async () => {
        const now = await look();
        return now !== undefined && now.began?.getTime() !== first.began?.getTime() && now;
      },
      { what: 'the migration to give up and try again' },
    );
    expect(second.pid).toBe(first.pid);
    const waited = (second.began?.getTime() ?? 0) - (first.began?.getTime() ?? 0);
    expect(waited).toBeLessThan(3_500);
    await client.query('COMMIT');
    expect((await running).applied).toEqual(['partitions']);
    await watcher.end();
  });
});
