// The examples of the test kit with Jest and PGlite: examples/testing as a project of its own, with the packed package.
// Only with `--mode full`: installing takes a minute. test/database/example-testing.test.ts runs the others.

import { beforeAll, expect, inject, test } from 'vitest';

import { runNode } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';
import { installExample } from './installed-example.js';

const db = testDatabase();
const isFull = inject('isFull');
if (!isFull) console.warn('Jest and PGlite are left out: npm run test:full runs them.');

beforeAll(async () => {
  await db.query(
    'CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE, mails int NOT NULL DEFAULT 0)',
  );
});

test.skipIf(!isFull)(
  'X4 the examples with Jest and PGlite pass',
  { timeout: 900_000 },
  async () => {
    const cwd = installExample('testing', {
      '@electric-sql/pglite': '^0.5.16',
      '@jest/globals': '^30.5.0',
      jest: '^30.5.0',
      pg: '^8.23.1',
    });
    const environment = { DATABASE_URL: db.url };
    const jest = await runNode(
      ['--experimental-vm-modules', 'node_modules/jest/bin/jest.js', 'jest.test.mjs'],
      { cwd, environment },
    ).ended(120_000);
    expect(jest.code, jest.stdout + jest.stderr).toBe(0);
    expect(jest.stderr).toMatch(/2 passed/);
    const pglite = await runNode(['--test', 'pglite.test.mjs'], { cwd }).ended(120_000);
    expect(pglite.code, pglite.stdout + pglite.stderr).toBe(0);
    expect(pglite.stdout).toContain('pass 3');
  },
);
