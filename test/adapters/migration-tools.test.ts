// Migration files applied by the tools that they are written for, between the application's own migrations: the schema
// is healthy, `migrate up` and relays accept it, and tools with a way back revert it. `npm test` runs two of the tools,
// `--mode full` all of them.

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, inject, test } from 'vitest';

import { migrationStatus } from '../../src/database/migrate.js';
import { migrationSteps } from '../../src/database/migration-steps.js';
import { createRelay, handler } from '../../src/index.js';
import { planMigrationFiles } from '../../src/init/migration-files.js';
import type { MigrationFormat } from '../../src/init/migration-files.js';
import { writeFiles } from '../../src/init/project-files.js';
import { runProgram, temporaryDirectory } from '../support/cli.js';
import { otherDatabase } from '../support/postgres.js';
import type { OtherDatabase } from '../support/postgres.js';
import { librariesMissing } from './installed.js';

const { jarsOf } = (await import(path.resolve('scripts/jars.mjs'))) as {
  jarsOf: (name: string) => string;
};
const schema = 'outbox';
const isFull = inject('isFull');

function addOurs(format: MigrationFormat, directory: string): void {
  writeFiles(planMigrationFiles({ format, directory, schema, steps: migrationSteps(schema) }));
}

/** What a table of the application's migrations must show: they ran in their own schema. */
async function expectApplied({ url, client }: OtherDatabase, ...own: string[]): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT name FROM ${schema}.health_check() WHERE NOT ok`,
  );
  expect(rows).toEqual([]);
  const states = (await migrationStatus({ url, schema })).map(({ state }) => state);
  expect(new Set(states)).toEqual(new Set(['applied']));
  const relay = createRelay({
    database: { url, schema },
    destinations: { crm: handler(() => {}) },
    routes: [{ topic: '*', to: 'crm' }],
  });
  await relay.start();
  await relay.stop();
  for (const table of own) await client.query(`SELECT FROM public.${table}`);
}

async function expectReverted({ client }: OtherDatabase): Promise<void> {
  const { rows } = await client.query('SELECT to_regnamespace($1) AS found', [schema]);
  expect(rows).toEqual([{ found: null }]);
}

describe.skipIf(librariesMissing() !== null)('N12 migration files are applied by', () => {
  test('Drizzle', async () => {
    const [{ drizzle }, { migrate }] = await Promise.all([
      import('drizzle-orm/node-postgres'),
      import('drizzle-orm/node-postgres/migrator'),
    ]);
    const database = await otherDatabase('empty');
    const directory = temporaryDirectory();
    const journal = path.join(directory, 'meta', '_journal.json');
    mkdirSync(path.dirname(journal));
    const entry = (idx: number, tag: string, when: number) => {
      writeFileSync(path.join(directory, `${tag}.sql`), `CREATE TABLE own_${idx} (id int);`);
      return { idx, version: '7', when, tag, breakpoints: true };
    };
    writeFileSync(
      journal,
      JSON.stringify({ version: '7', dialect: 'postgresql', entries: [entry(0, '0000_own', 1)] }),
    );
    addOurs('drizzle', directory);
    type Journal = { entries: ReturnType<typeof entry>[] };
    const written = JSON.parse(readFileSync(journal, 'utf8')) as Journal;
    written.entries.push(entry(3, '0003_own', 4_000_000_000_000));
    writeFileSync(journal, JSON.stringify(written));
    const db = drizzle(database.client);
    await migrate(db, { migrationsFolder: directory });
    await migrate(db, { migrationsFolder: directory });
    await expectApplied(database, 'own_0', 'own_3');
  });

  test('Knex, and reverted', async () => {
    const { default: knex } = await import('knex');
    const database = await otherDatabase('empty');
    const directory = temporaryDirectory();
    addOurs('knex', directory);
    const own = (name: string) =>
      `exports.up = (knex) => knex.schema.createTable('${name}', (table) => table.increments());\nexports.down = (knex) => knex.schema.dropTable('${name}');\n`;
    writeFileSync(path.join(directory, '20000101000000_own.cjs'), own('own_0'));
    writeFileSync(path.join(directory, '29990101000000_own.cjs'), own('own_3'));
    const db = knex({ client: 'pg', connection: database.url, migrations: { directory } });
    try {
      await db.migrate.latest();
      await expectApplied(database, 'own_0', 'own_3');
      await db.migrate.rollback();
      await expectReverted(database);
    } finally {
      await db.destroy();
    }
  });

  test.skipIf(!isFull)('node-pg-migrate, and reverted', async () => {
    const { runner } = await import('node-pg-migrate');
    const database = await otherDatabase('empty');
    const directory = temporaryDirectory();
    addOurs('node-pg-migrate', directory);
    const own = (name: string) =>
      `-- Up Migration\nCREATE TABLE ${name} (id int);\n-- Down Migration\nDROP TABLE ${name};\n`;
    writeFileSync(path.join(directory, '1000000000000_own.sql'), own('own_0'));
    writeFileSync(path.join(directory, '9000000000000_own.sql'), own('own_3'));
    const run = (direction: 'up' | 'down') =>
      runner({
        databaseUrl: database.url,
        dir: directory,
        direction,
        count: Infinity,
        migrationsTable: 'pgmigrations',
        log: () => undefined,
      });
    expect(await run('up')).toHaveLength(4);
    await expectApplied(database, 'own_0', 'own_3');
    await run('down');
    await expectReverted(database);
  });

  test.skipIf(!isFull)('Prisma', async () => {
    const { deploy } = await import('./prisma-engine.js');
    const database = await otherDatabase('empty');
    const directory = temporaryDirectory();
    addOurs('prisma', directory);
    for (const [name, table] of [
      ['20000101000000_own', 'own_0'],
      ['29990101000000_own', 'own_3'],
    ] as const) {
      mkdirSync(path.join(directory, name));
      writeFileSync(
        path.join(directory, name, 'migration.sql'),
        `CREATE TABLE ${table} (id int);\n`,
      );
    }
    expect(await deploy(directory, database.url)).toHaveLength(4);
    expect(await deploy(directory, database.url)).toEqual([]);
    await expectApplied(database, 'own_0', 'own_3');
  });
});

const jars = jarsOf('flyway');
const noFlyway = existsSync(jars) ? null : `no Flyway in ${jars}: run node scripts/jars.mjs flyway`;
if (isFull && noFlyway !== null) console.warn(`Flyway is left out: ${noFlyway}.`);

test.skipIf(!isFull || noFlyway !== null)(
  'N12 migration files are applied by Flyway',
  { timeout: 240_000 },
  async () => {
    const database = await otherDatabase('empty');
    const directory = temporaryDirectory();
    writeFileSync(path.join(directory, 'V1__own.sql'), 'CREATE TABLE own_0 (id int);\n');
    addOurs('flyway', directory);
    writeFileSync(path.join(directory, 'V4__own.sql'), 'CREATE TABLE own_3 (id int);\n');
    const { host, pathname, username } = new URL(database.url);
    const migrated = await runProgram('java', [
      '-cp',
      path.join(jars, '*'),
      path.resolve('test/contract/services/flyway/Migrate.java'),
      `jdbc:postgresql://${host}${pathname}`,
      username,
      directory,
    ]).ended(200_000);
    expect(migrated, migrated.stderr).toMatchObject({ code: 0, stdout: 'applied 4\n' });
    await expectApplied(database, 'own_0', 'own_3');
  },
);

test.skipIf(!isFull)('N12 plain files are applied by psql, any number of times', async () => {
  const database = await otherDatabase('empty');
  const directory = temporaryDirectory();
  addOurs('plain', directory);
  const files = readdirSync(directory)
    .toSorted()
    .flatMap((name) => ['-f', path.join(directory, name)]);
  const run = () => runProgram('psql', [database.url, '-qX', ...files]).ended();
  const isFine = { code: 0, stderr: expect.not.stringContaining('ERROR') as unknown };
  expect(await run()).toMatchObject(isFine);
  expect(await run()).toMatchObject(isFine);
  await expectApplied(database);
});
