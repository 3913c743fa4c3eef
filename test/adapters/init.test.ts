// What `waybill init` writes, in projects with the real packages: the compiler accepts it, the example enqueues in a
// transaction, and a relay with the configuration delivers the message. `npm test` runs some of the projects, `--mode
// full` all of them, and the compiler.

import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';

import type { Enqueued } from '../../src/index.js';
import { detectProject } from '../../src/init/detect.js';
import { planProject } from '../../src/init/plan.js';
import { writeFiles } from '../../src/init/project-files.js';
import { cli } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';
import { librariesMissing } from './installed.js';

const db = testDatabase();
const folder = path.resolve('test/adapters/generated/init');

const libraries = {
  pg: ['pg'],
  postgres: ['postgres'],
  'drizzle-pg': ['drizzle-orm', 'pg'],
  'drizzle-postgres': ['drizzle-orm', 'postgres'],
  kysely: ['kysely', 'pg'],
  knex: ['knex', 'pg'],
  typeorm: ['typeorm', 'pg'],
  prisma: ['@prisma/client', '@prisma/adapter-pg'],
};
const isFull = inject('isFull');
const quick = ['pg', 'drizzle-pg', 'prisma'];
const projects = Object.entries(libraries)
  .flatMap(([name, dependencies]) =>
    ['typescript', 'javascript'].map((language) => ({ name, language, dependencies })),
  )
  .filter(({ name }) => isFull || quick.includes(name));

const directoryOf = (name: string, language: string) => path.join(folder, `${name}-${language}`);
const ending = (language: string) => (language === 'typescript' ? 'ts' : 'mjs');

function makeProject({ name, language, dependencies }: (typeof projects)[number]): void {
  const directory = directoryOf(name, language);
  mkdirSync(path.join(directory, 'src'), { recursive: true });
  const installed = language === 'typescript' ? [...dependencies, 'typescript'] : dependencies;
  writeFileSync(
    path.join(directory, 'package.json'),
    JSON.stringify({
      type: 'module',
      dependencies: Object.fromEntries([...installed, 'waybill'].map((one) => [one, '*'])),
    }),
  );
  if (name === 'prisma') {
    mkdirSync(path.join(directory, 'prisma'));
    writeFileSync(
      path.join(directory, 'prisma', 'schema.prisma'),
      'generator client {\n  provider = "prisma-client"\n  output   = "../generated/prisma"\n}\n',
    );
    cpSync('test/adapters/generated/prisma', path.join(directory, 'generated', 'prisma'), {
      recursive: true,
    });
  }
  writeFiles(planProject(directory, detectProject(directory)).files);
}

type Example = { register: (email: string) => Promise<Enqueued>; close: () => Promise<void> };

describe.skipIf(librariesMissing() !== null)('waybill init', () => {
  beforeAll(() => {
    rmSync(folder, { recursive: true, force: true });
    for (const project of projects) makeProject(project);
    process.env['DATABASE_URL'] = db.url;
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test.skipIf(!isFull)('M1 the compiler accepts what it writes', { timeout: 120_000 }, async () => {
    writeFileSync(
      path.join(folder, 'tsconfig.json'),
      JSON.stringify({
        extends: '../../../../tsconfig.json',
        include: ['*/src/*.ts', '*/waybill.config.ts'],
        exclude: [],
      }),
    );
    const compile = promisify(execFile)('node_modules/.bin/tsc', ['--noEmit', '-p', folder]);
    const { stdout } = await compile.catch((error: { stdout: string }) => error);
    expect(stdout).toBe('');
  });

  test.each(projects)(
    'M1 the example of $name in $language enqueues',
    async ({ name, language }) => {
      const file = path.join(
        directoryOf(name, language),
        'src',
        `waybill-example.${ending(language)}`,
      );
      const { register, close } = (await import(file)) as Example;
      try {
        const { id } = await register(`${name}@example.com`);
        const { rows } = await db.query(
          `SELECT topic, payload FROM ${db.quoted}.messages WHERE id = $1`,
          [id],
        );
        const payload = { email: `${name}@example.com` };
        expect(rows).toEqual([{ topic: 'user.registered', payload }]);
      } finally {
        await close();
      }
    },
  );

  test('M1 a relay with its configuration delivers the messages', async () => {
    for (const language of ['typescript', 'javascript']) {
      const directory = directoryOf('pg', language);
      const { rows } = await db.query<{ id: string }>(
        `SELECT id FROM ${db.quoted}.enqueue('user.registered', '{"email": "${language}"}')`,
      );
      const environment = { DATABASE_URL: db.url, WAYBILL_SCHEMA: db.schema };
      const drained = await cli(['drain'], { cwd: directory, environment });
      expect(drained).toMatchObject({
        code: 0,
        stdout: expect.stringContaining(`message ${rows[0]?.id}, try 1:`) as unknown,
      });
    }
  });
});
