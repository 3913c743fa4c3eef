// Migration files of other tools: their names continue the numbering of the directory, and nothing that exists is
// overwritten. test/adapters/migration-tools.test.ts applies them with the tools themselves.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { version } from '../../src/core/version.js';
import { migrationSteps } from '../../src/database/migration-steps.js';
import { migrationFormats, planMigrationFiles } from '../../src/init/migration-files.js';
import type { MigrationFormat } from '../../src/init/migration-files.js';
import { writeFiles } from '../../src/init/project-files.js';
import type { PlannedFile } from '../../src/init/project-files.js';
import { temporaryDirectory } from '../support/cli.js';

const steps = migrationSteps('outbox');
const now = new Date('2026-11-17T22:05:09.123Z');
const functions = `waybill_${version.replaceAll('.', '_')}_functions`;

function plan(format: MigrationFormat, directory: string, schema = 'outbox'): PlannedFile[] {
  return planMigrationFiles({ format, directory, schema, steps, now });
}

function namesOf(files: readonly PlannedFile[], directory: string): string[] {
  return files.map((file) => path.relative(directory, file.path));
}

function directoryWith(...names: string[]): string {
  const directory = temporaryDirectory();
  for (const name of names) writeFileSync(path.join(directory, name), '-- mine\n');
  return directory;
}

describe('names', () => {
  it.each<[MigrationFormat, string[]]>([
    ['plain', ['20261117220509_waybill_0001_storage.sql', `20261117220510_${functions}.sql`]],
    ['knex', ['20261117220509_waybill_0001_storage.cjs', `20261117220510_${functions}.cjs`]],
    [
      'node-pg-migrate',
      ['1794953109123_waybill_0001_storage.sql', `1794953109124_${functions}.sql`],
    ],
    ['flyway', ['V1__waybill_0001_storage.sql', `V2__${functions}.sql`]],
    ['drizzle', ['0000_waybill_0001_storage.sql', `0001_${functions}.sql`, 'meta/_journal.json']],
    [
      'prisma',
      [
        '20261117220509_waybill_0001_storage/migration.sql',
        `20261117220510_${functions}/migration.sql`,
        'migration_lock.toml',
      ],
    ],
  ])('N12 %s', (format, names) => {
    const directory = temporaryDirectory();
    expect(namesOf(plan(format, directory), directory)).toEqual(names);
  });

  it.each<[MigrationFormat, string, string]>([
    ['flyway', 'V7__mine.sql', 'V8'],
    ['flyway', 'V007__mine.sql', 'V008'],
    ['flyway', 'V2.3.1__mine.sql', 'V3'],
    ['flyway', 'V20260101000000__mine.sql', 'V20261117220509'],
    ['knex', '20991231235959_mine.js', '21000101000000'],
    ['node-pg-migrate', '0012_mine.sql', '0013'],
    ['node-pg-migrate', '20991231235959999_mine.sql', '21000101000000000'],
    ['drizzle', '0041_mine.sql', '0042'],
  ])('N12 %s after %s begins with %s', (format, existing, number) => {
    const directory = directoryWith(existing);
    expect(namesOf(plan(format, directory), directory)[0]).toMatch(
      new RegExp(`^${number}__?waybill_0001_storage`),
    );
  });

  it('N12 name another schema, so that two schemas can share a directory', () => {
    const directory = temporaryDirectory();
    writeFiles(plan('plain', directory));
    const [first] = namesOf(plan('plain', directory, 'Second one'), directory);
    expect(first).toBe('20261117220511_waybill_second_one_0001_storage.sql');
  });
});

describe('existing files', () => {
  it.each(migrationFormats)(
    'N12 %s: a second run writes nothing, whatever the files contain',
    (format) => {
      const directory = temporaryDirectory();
      writeFiles(plan(format, directory));
      const all = () =>
        readdirSync(directory, { recursive: true, encoding: 'utf8' })
          .filter((name) => /\.\w+$/.test(name))
          .map((name) => [name, readFileSync(path.join(directory, name), 'utf8')]);
      const before = all();
      expect(before.length).toBeGreaterThan(1);
      const again = plan(format, directory);
      expect(again.every(({ exists }) => exists)).toBe(true);
      writeFiles(again);
      expect(all()).toEqual(before);
    },
  );

  it('N12 of a schema whose name ends like another one do not stand for the other', () => {
    const directory = temporaryDirectory();
    writeFiles(plan('plain', directory, 'app_waybill'));
    writeFiles(plan('plain', directory));
    expect(readdirSync(directory)).toHaveLength(4);
  });

  it('N12 two schemas that would have the same files are refused', () => {
    const directory = temporaryDirectory();
    writeFiles(plan('plain', directory, 'tenant-a'));
    expect(() => plan('plain', directory, 'tenant_a')).toThrow('belongs to another schema');
  });

  it('N12 a file that appears after the plan is an error, and stays as it is', () => {
    const directory = temporaryDirectory();
    const files = plan('plain', directory);
    const [first] = files;
    writeFileSync(first?.path ?? '', '-- mine\n');
    expect(() => writeFiles(files)).toThrow(/EEXIST/);
    expect(readFileSync(first?.path ?? '', 'utf8')).toBe('-- mine\n');
  });

  it("N12 Drizzle's journal keeps its entries, and the added ones are later than all of them", () => {
    const directory = directoryWith('0000_mine.sql');
    mkdirSync(path.join(directory, 'meta'));
    const file = path.join(directory, 'meta', '_journal.json');
    const mine = {
      idx: 0,
      version: '7',
      when: 4_000_000_000_000,
      tag: '0000_mine',
      breakpoints: true,
    };
    const journal = { version: '7', dialect: 'postgresql', entries: [mine] };
    writeFileSync(file, JSON.stringify(journal));
    writeFiles(plan('drizzle', directory));
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({
      ...journal,
      entries: [
        mine,
        { ...mine, idx: 1, when: mine.when + 1, tag: '0001_waybill_0001_storage' },
        { ...mine, idx: 2, when: mine.when + 2, tag: `0002_${functions}` },
      ],
    });
    writeFileSync(file, '[]');
    expect(() => plan('drizzle', directory)).toThrow(/is not a journal of Drizzle/);
  });

  it("N12 Drizzle's journal is refused if it has changed since it was read, and nothing is written", () => {
    const directory = directoryWith();
    mkdirSync(path.join(directory, 'meta'));
    const file = path.join(directory, 'meta', '_journal.json');
    const journal = { version: '7', dialect: 'postgresql', entries: [] };
    writeFileSync(file, JSON.stringify(journal));
    const files = plan('drizzle', directory);
    const changed = JSON.stringify({ ...journal, entries: [{ idx: 0, tag: '0000_mine' }] });
    writeFileSync(file, changed);
    expect(() => writeFiles(files)).toThrow(/_journal\.json has changed since it was read/);
    expect(readFileSync(file, 'utf8')).toBe(changed);
    expect(readdirSync(directory)).toEqual(['meta']);
    writeFiles(plan('drizzle', directory));
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({
      entries: [{ tag: '0000_mine' }, { idx: 1 }, { idx: 2 }],
    });
  });
});
