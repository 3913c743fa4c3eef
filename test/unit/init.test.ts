// waybill init: what it detects, which files it writes, and that it overwrites nothing. test/adapters/init.test.ts
// compiles and runs what it writes.

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { version } from '../../src/core/version.js';
import { detectProject } from '../../src/init/detect.js';
import { planProject } from '../../src/init/plan.js';
import { cli, json, temporaryDirectory } from '../support/cli.js';

type Files = Record<string, string>;

function makeProject(dependencies: readonly string[], files: Files = {}, more = {}): string {
  const directory = temporaryDirectory();
  const described = {
    dependencies: Object.fromEntries(dependencies.map((name) => [name, '*'])),
    ...more,
  };
  const all: Files = { 'package.json': JSON.stringify(described), ...files };
  for (const [name, text] of Object.entries(all)) {
    mkdirSync(path.dirname(path.join(directory, name)), { recursive: true });
    writeFileSync(path.join(directory, name), text);
  }
  return directory;
}

const filesIn = (directory: string): Files =>
  Object.fromEntries(
    readdirSync(directory, { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.\w+$/.test(name))
      .map((name) => [name, readFileSync(path.join(directory, name), 'utf8')]),
  );

describe('detection', () => {
  it.each<[string, Files, object, string]>([
    ['a lock file of pnpm', { 'pnpm-lock.yaml': '' }, {}, 'pnpm'],
    ['a lock file of Yarn', { 'yarn.lock': '' }, {}, 'yarn'],
    ['a lock file of Bun', { 'bun.lock': '' }, {}, 'bun'],
    ['a lock file of npm', { 'package-lock.json': '' }, {}, 'npm'],
    ['nothing', {}, {}, 'npm'],
    ['packageManager', { 'package-lock.json': '' }, { packageManager: 'yarn@4.1.0' }, 'yarn'],
  ])('finds the package manager by %s', (_what, files, more, expected) => {
    const directory = makeProject([], files, more);
    mkdirSync(path.join(directory, '.git'));
    expect(detectProject(directory).packageManager).toBe(expected);
  });

  it('finds the package manager of a workspace in a directory above', () => {
    const directory = makeProject([], { 'pnpm-lock.yaml': '', 'api/package.json': '{}' });
    expect(detectProject(path.join(directory, 'api')).packageManager).toBe('pnpm');
  });

  it.each([
    [['drizzle-orm', 'pg'], 'drizzle-orm/node-postgres'],
    [['drizzle-orm', 'postgres'], 'drizzle-orm/postgres-js'],
    [['@prisma/client', 'pg'], 'prisma'],
    [['kysely', 'pg'], 'kysely'],
    [['knex', 'pg'], 'knex'],
    [['typeorm', 'pg'], 'typeorm'],
    [['postgres'], 'postgres'],
    [['pg'], 'pg'],
    [[], 'pg'],
  ])('%j is %s', (dependencies, library) => {
    expect(detectProject(makeProject(dependencies))).toMatchObject({ library, tool: null });
  });

  it.each<[string, string[], Files, object]>([
    ['drizzle-kit', ['drizzle-kit'], {}, { format: 'drizzle', directory: 'drizzle' }],
    [
      'a configuration of drizzle-kit',
      [],
      { 'drizzle.config.ts': `export default { out: './db/migrations' };` },
      { format: 'drizzle', directory: './db/migrations' },
    ],
    [
      'a schema of Prisma',
      [],
      { 'prisma/schema.prisma': '' },
      { format: 'prisma', directory: 'prisma/migrations' },
    ],
    [
      'a configuration of Prisma',
      [],
      {
        'prisma.config.ts': `export default { schema: 'db/app.prisma', migrations: { path: 'db/changes' } };`,
        'db/app.prisma': '',
      },
      { format: 'prisma', directory: 'db/changes' },
    ],
    [
      'node-pg-migrate',
      ['node-pg-migrate'],
      {},
      { format: 'node-pg-migrate', directory: 'migrations' },
    ],
    [
      'a knexfile',
      ['knex'],
      { 'knexfile.js': `module.exports = { migrations: { directory: './db' } };` },
      { format: 'knex', directory: './db' },
    ],
    [
      'a configuration of Flyway',
      [],
      { 'flyway.toml': 'locations = ["filesystem:migrations"]' },
      { format: 'flyway', directory: 'migrations' },
    ],
  ])('finds the migration tool by %s', (_what, dependencies, files, tool) => {
    expect(detectProject(makeProject(dependencies, files)).tool).toEqual(tool);
  });
});

describe('the plan', () => {
  const plan = (directory: string) => {
    const { files, next } = planProject(directory, detectProject(directory));
    return { files: files.map((file) => path.relative(directory, file.path)), next };
  };

  it.each<[string, string[], Files, object, string[], string[]]>([
    [
      'JavaScript',
      ['pg'],
      {},
      {},
      ['waybill.config.mjs', 'waybill-example.mjs'],
      ['npm install waybill', 'npx waybill migrate up', 'npx waybill start'],
    ],
    [
      'TypeScript modules in src',
      ['pg', 'typescript', 'waybill'],
      { 'src/main.ts': '', 'yarn.lock': '' },
      { type: 'module' },
      ['waybill.config.ts', 'src/waybill-example.ts'],
      ['yarn waybill migrate up', 'yarn waybill start'],
    ],
    [
      'TypeScript with CommonJS',
      ['pg', 'waybill'],
      { 'tsconfig.json': '{}', 'pnpm-lock.yaml': '' },
      {},
      ['waybill.config.mts', 'waybill-example.mts'],
      ['pnpm exec waybill migrate up', 'pnpm exec waybill start'],
    ],
  ])('for %s', (_what, dependencies, files, more, names, next) => {
    expect(plan(makeProject(dependencies, files, more))).toEqual({ files: names, next });
  });

  it('has migrations in the layout of the tool, and its command', () => {
    const files = { 'drizzle/0004_own.sql': '', 'bun.lock': '' };
    const { files: names, next } = plan(
      makeProject(['drizzle-orm', 'drizzle-kit', 'waybill'], files),
    );
    expect(names).toEqual([
      'waybill.config.mjs',
      'drizzle/0005_waybill_0001_storage.sql',
      `drizzle/0006_waybill_${version.replaceAll('.', '_')}_functions.sql`,
      'drizzle/meta/_journal.json',
      'waybill-example.mjs',
    ]);
    expect(next).toEqual(['bunx drizzle-kit migrate', 'bunx waybill start']);
  });
});

describe('the example with Prisma', () => {
  const schema = (provider: string, output: string) => ({
    'prisma/schema.prisma': `generator other {\n  output = "../docs"\n}\ngenerator client {\n  provider = "${provider}"\n${output}}\n`,
  });
  const output = '  output = "../generated/prisma"\n';

  it.each<[string, Files, string]>([
    ['in a package', schema('prisma-client-js', ''), '@prisma/client'],
    ['in JavaScript', schema('prisma-client-js', output), '../generated/prisma/index.js'],
    [
      'in TypeScript',
      { ...schema('prisma-client', output), 'tsconfig.json': '' },
      '../generated/prisma/client.js',
    ],
    [
      'in TypeScript, used from JavaScript',
      schema('prisma-client', output),
      '../generated/prisma/client.ts',
    ],
  ])('imports a client that is generated %s', (_what, files, from) => {
    const directory = makeProject(['@prisma/client'], { ...files, 'src/main.js': '' });
    const example = planProject(directory, detectProject(directory)).files.at(-1);
    expect(example?.text).toContain(`import { PrismaClient } from '${from}';`);
  });
});

describe('the command', () => {
  it('writes the files, then keeps all of them and shows what it would have written', async () => {
    const own = 'export default {};\n';
    const directory = makeProject(['knex', 'waybill'], {
      'knexfile.js': '',
      'waybill.config.js': own,
    });
    const before = filesIn(directory);
    const dry = await cli(['init', directory, '--dry-run']);
    expect(dry).toMatchObject({ code: 0, stderr: '' });
    expect(dry.stdout).toContain('to write  migrations/');
    expect(filesIn(directory)).toEqual(before);

    const first = await cli(['init', '--yes'], { cwd: directory });
    expect(first).toMatchObject({ code: 0, stderr: '' });
    expect(first.stdout).toMatch(/^wrote {5}migrations\/\d+_waybill_0001_storage\.cjs$/m);
    expect(first.stdout).toContain('wrote     waybill-example.mjs\n');
    expect(first.stdout).toContain('kept      waybill.config.js, which is there already');
    expect(first.stdout).toContain("          | import { defineConfig, handler } from 'waybill';");
    expect(first.stdout).toMatch(/ {2}\$ npx knex migrate:latest\n {2}\$ npx waybill start\n$/);
    const after = filesIn(directory);
    expect(after).toMatchObject(before);

    const second = json(await cli(['init', directory, '--json'])) as {
      files: { state: string; wouldBe?: string }[];
    };
    expect(second.files.map(({ state }) => state)).toEqual(['kept', 'kept', 'kept', 'kept']);
    expect(second.files[0]?.wouldBe).toContain('defineConfig');
    expect(filesIn(directory)).toEqual(after);
  });

  it('takes another tool and directory from its flags', async () => {
    const directory = makeProject(['pg', 'waybill'], { 'db/V3__own.sql': '' });
    const flags = ['--format', 'flyway', '--out', 'db', '--json'];
    expect(json(await cli(['init', directory, ...flags]))).toMatchObject({
      project: { migrations: { format: 'flyway', directory: 'db' } },
      files: [{}, { path: 'db/V4__waybill_0001_storage.sql', state: 'written' }, {}, {}],
      next: ['flyway migrate', 'npx waybill start'],
    });
  });

  it.each([
    ['no package.json', {}, 'there is no package.json in'],
    ['a broken one', { 'package.json': '{' }, 'is not a JSON object'],
  ])('refuses a directory with %s', async (_what, files: Files, words) => {
    const directory = temporaryDirectory();
    for (const [name, text] of Object.entries(files))
      writeFileSync(path.join(directory, name), text);
    const { code, stderr } = await cli(['init', directory]);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining(words) as unknown,
    });
    expect(filesIn(directory)).toEqual(files);
  });
});
