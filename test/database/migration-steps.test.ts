// Migration steps for other tools: the SQL alone makes the schema that `migrate up` makes, and checks itself what `up`
// checks. Upgrades are tested with a made-up later version that has a second migration.

import type pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { version } from '../../src/core/version.js';
import { migrateUp, migrationStatus } from '../../src/database/migrate.js';
import { installRoles } from '../../src/database/roles.js';
import { addedInOf, migrationSteps } from '../../src/database/migration-steps.js';
import { readSqlFiles } from '../../src/database/sql-files.js';
import type { SqlFiles } from '../../src/database/sql-files.js';
import { cli, json } from '../support/cli.js';
import { rolePrefix } from '../support/logins.js';
import { inventory } from '../support/inventory.js';
import { enqueueMany } from '../support/outbox.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { laterVersion } from '../fault/upgrade/checkout.js';

const db = testDatabase({ allPartitions: true });
const { schema, quoted } = db;
const steps = migrationSteps(schema);
const [storage, functions] = steps;
if (storage === undefined || functions === undefined) throw new Error('there are two steps');

async function applyAll(client: pg.Client, all = steps): Promise<void> {
  for (const { up } of all) await client.query(up);
}

const settings = `SELECT current_setting('search_path') AS path, current_setting('role') AS role,
  current_setting('lock_timeout') AS lock, current_setting('check_function_bodies') AS bodies`;

async function schemaExists(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ exists: boolean }>(
    'SELECT to_regnamespace($1) IS NOT NULL AS exists',
    [quoted],
  );
  return rows[0]?.exists === true;
}

/** The files of this version, and a made-up migration after them. */
function filesWithSecond(worksWith: string): SqlFiles {
  const files = readSqlFiles();
  const text = 'ALTER TABLE deliveries ADD COLUMN note text;\n';
  const second = {
    name: 'migrations/0002_note.sql',
    text: `-- Added in Waybill 0.2.0.\n${text}`,
    checksum: 'second',
    down: 'ALTER TABLE deliveries DROP COLUMN note;\n',
    worksWith,
  };
  return { ...files, migrations: [...files.migrations, second] };
}

async function states(url: string): Promise<Set<string>> {
  return new Set((await migrationStatus({ url, schema })).map(({ state }) => state));
}

function noticesOf(client: pg.Client): string[] {
  const notices: string[] = [];
  client.on('notice', ({ message }) => notices.push(message ?? ''));
  return notices;
}

describe('a new schema', () => {
  it('N12 is the one that up makes, and up has nothing more to do', async () => {
    const { url, client } = await otherDatabase('empty');
    await applyAll(client);
    expect((await migrateUp({ url, schema })).applied).toEqual(['partitions']);
    expect(await states(url)).toEqual(new Set(['applied']));
    await installRoles({ url, schema }, rolePrefix);
    expect(await inventory(client, quoted)).toEqual(await inventory(db.pool, quoted));
  });

  it('N12 a step that is applied again says so and changes nothing', async () => {
    const { client } = await otherDatabase('migrated');
    const applied = `SELECT * FROM ${quoted}.applied_files ORDER BY file`;
    const before = [(await client.query(applied)).rows, await inventory(client, quoted)];
    const notices = noticesOf(client);
    await applyAll(client);
    expect([(await client.query(applied)).rows, await inventory(client, quoted)]).toEqual(before);
    expect(notices).toContain(
      `migrations/0001_storage.sql is already applied to the schema ${quoted}`,
    );
  });

  it('N12 a step that fails has applied nothing, with or without a transaction around it', async () => {
    const { client } = await otherDatabase('empty');
    await expect(client.query(functions.up)).rejects.toThrow(
      `migrations/0001_storage.sql is not applied to the schema ${quoted}: apply it first`,
    );
    const broken = storage.up.replace('CREATE TABLE deliveries', 'CREATE TABEL deliveries');
    await expect(client.query(broken)).rejects.toThrow(/syntax error/);
    expect(await schemaExists(client)).toBe(false);
    await client.query(`BEGIN; SET LOCAL lock_timeout = '7s'; SET LOCAL search_path = public`);
    const before = (await client.query(settings)).rows;
    await applyAll(client);
    expect((await client.query(settings)).rows, 'settings of the transaction').toEqual(before);
    await client.query('ROLLBACK');
    expect(await schemaExists(client)).toBe(false);
  });

  it('N12 everything belongs to the owner of the schema, whichever member applies it', async () => {
    const { client } = await otherDatabase('empty');
    const owner = `steps_owner_${process.pid}`;
    await client.query(`CREATE ROLE ${owner}; CREATE SCHEMA ${quoted} AUTHORIZATION ${owner}`);
    onTestFinished(async () => {
      await client.query(`DROP OWNED BY ${owner} CASCADE; DROP ROLE ${owner}`);
    });
    await client.query(storage.up);
    const { rows } = await client.query(
      `SELECT DISTINCT tableowner AS owner, current_user = session_user AS reset FROM pg_tables WHERE schemaname = $1`,
      [schema],
    );
    expect(rows).toEqual([{ owner, reset: true }]);
  });

  it('N12 a changed migration is refused, and functions of a newer version are kept', async () => {
    const { client } = await otherDatabase('migrated');
    const update = `UPDATE ${quoted}.applied_files SET checksum = 'other'`;
    await client.query(`${update}, version = '99.1.0' WHERE file = 'functions/retry.sql'`);
    const notices = noticesOf(client);
    await applyAll(client);
    expect(notices.join('\n')).toContain('has the functions of a newer version: 99.1.0');
    const { rows } = await client.query(
      `SELECT version FROM ${quoted}.applied_files WHERE file = 'functions/retry.sql'`,
    );
    expect(rows).toEqual([{ version: '99.1.0' }]);
    await client.query(`${update} WHERE file LIKE 'migrations/%'`);
    await expect(client.query(storage.up)).rejects.toThrow(
      /0001_storage.sql was applied .* with other contents/,
    );
  });

  it('N12 every migration says which version brought it', () => {
    for (const file of readSqlFiles().migrations) expect(addedInOf(file)).toMatch(/^\d+\.\d+\.\d+/);
    expect(() => addedInOf({ name: 'migrations/0002_a.sql', text: 'SELECT 1' })).toThrow(
      /0002_a.sql does not say which version brought it: add the line/,
    );
  });
});

describe('a second migration', () => {
  it('N12 is refused while relays run that do not work with it, and is reverted before the first', async () => {
    const { client } = await otherDatabase('migrated');
    const [, second] = migrationSteps(schema, { files: filesWithSecond('99.0.0') });
    await client.query(
      `INSERT INTO ${quoted}.relays (id, name, version, configuration, destinations, started_at, heartbeat_at, breakers, problems)
       VALUES (gen_random_uuid(), 'pod-1', '0.2.0', 'c', '{}', now(), clock_timestamp(), '{}', '{}')`,
    );
    await expect(client.query(second?.up ?? '')).rejects.toThrow(
      'migrations/0002_note.sql works with relays of Waybill 99.0.0 and newer, and older ones are running: pod-1 (0.2.0)',
    );
    await client.query(`DELETE FROM ${quoted}.relays`);
    await client.query(second?.up ?? '');
    await client.query(`SELECT note FROM ${quoted}.deliveries`);

    const down = storage.down ?? '';
    await expect(client.query(down)).rejects.toThrow(
      'migrations/0001_storage.sql cannot be taken back before migrations/0002_note.sql',
    );
    await client.query(second?.down ?? '');
    await expect(client.query(`SELECT note FROM ${quoted}.deliveries`)).rejects.toThrow(/note/);
    const forgotten = `SELECT FROM ${quoted}.applied_files WHERE file NOT LIKE 'migrations/0001%'`;
    expect((await client.query(forgotten)).rowCount).toBe(0);

    await client.query(`SELECT ${quoted}.define_destination('crm')`);
    await client.query(
      `INSERT INTO ${quoted}.routes (destination_id, topic) SELECT id, '*' FROM ${quoted}.destinations`,
    );
    await enqueueMany(db, client, [{ topic: 't' }]);
    await expect(client.query(down)).rejects.toThrow(/^1 messages are pending/);
    await client.query(`DELETE FROM ${quoted}.deliveries`);
    const before = (await client.query(settings)).rows;
    await client.query(down);
    await client.query(down);
    expect((await client.query(settings)).rows).toEqual(before);
    expect(await schemaExists(client)).toBe(false);
    await expect(client.query(second?.up ?? '')).rejects.toThrow(
      /0001_storage.sql is not applied .*: apply it first/,
    );
  });

  it('N12 comes with the next version, whose upgrade is written without a database', async () => {
    const next = laterVersion(
      '99.0.0',
      `-- Works with relays of Waybill ${version} and newer.\n-- Added in Waybill 98.0.0.\nALTER TABLE deliveries ADD COLUMN note text;\n`,
    );
    onTestFinished(() => next.remove());
    const { url, client } = await otherDatabase('migrated');
    const run = (...args: string[]) => next.waybill(url, ['migrate', ...args, '--schema', schema]);
    const { stdout } = await run('sql', '--from', version, '--to', '99.0.0');
    expect(stdout).not.toContain('CREATE TABLE messages');
    expect((await run('sql', '--from', '98.0.0')).stdout).not.toContain(
      '9000_later.sql is already',
    );
    expect(await run('check')).toMatchObject({ code: 4 });
    await client.query(stdout);
    await client.query(stdout);
    expect(await run('check')).toMatchObject({ code: 0 });
    const status = json(await run('status', '--json')) as { state: string }[];
    expect(new Set(status.map(({ state }) => state))).toEqual(new Set(['applied']));
    const { rows } = await client.query(
      `SELECT version, works_with AS "worksWith" FROM ${quoted}.applied_files WHERE file = 'migrations/9000_later.sql'`,
    );
    expect(rows).toEqual([{ version: '99.0.0', worksWith: version }]);
    // this version works with the newer schema, and its own steps change nothing there
    const environment = { DATABASE_URL: url, WAYBILL_SCHEMA: schema };
    expect(await cli(['migrate', 'check'], { environment })).toMatchObject({ code: 0 });
    await applyAll(client);
    expect(await run('check')).toMatchObject({ code: 0 });
  });
});

describe('sql', () => {
  it('N12 refuses versions that it cannot start from', () => {
    expect(() => migrationSteps(schema, { from: '99.0.0' })).toThrow(
      /newer than this version of Waybill/,
    );
    expect(() => migrationSteps(schema, { from: '0.1.0' })).toThrow(
      /the first one is of Waybill 0.2.0/,
    );
    expect(migrationSteps(schema, { from: version })).toEqual([]);
  });

  it.each([
    [['--from', version], 0, 'needs no migration'],
    [['--from', 'yesterday'], 2, 'give a version of Waybill'],
    [['--to', '99.0.0'], 2, 'run npx waybill@99.0.0 migrate sql'],
    [['--format', 'prisma'], 2, 'name their directory with --out'],
  ])('N12 %j ends with %i', async (args, code, words) => {
    const { stdout, ...rest } = await cli(['migrate', 'sql', ...args]);
    expect(rest).toMatchObject({ code, stderr: expect.stringContaining(words) as unknown });
    expect(stdout).toBe('');
  });
});
