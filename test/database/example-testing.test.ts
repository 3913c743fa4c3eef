// Runs the examples of the test kit that need no other packages: with the runner of Node, and, with
// `--mode full`, with Vitest. Those with Jest and PGlite are in test/adapters/testing-examples.test.ts.

import path from 'node:path';

import { beforeAll, expect, inject, test } from 'vitest';

import { runNode } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

beforeAll(async () => {
  await db.query(
    'CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE, mails int NOT NULL DEFAULT 0)',
  );
});

test('X4 the example with the runner of Node passes, and leaves nothing behind', async () => {
  const run = runNode(['--test', path.resolve('examples/testing/node.test.mjs')], {
    environment: { DATABASE_URL: db.url },
  });
  const { code, stdout, stderr } = await run.ended();
  expect(code, stdout + stderr).toBe(0);
  expect(stdout).toContain('pass 3');
  const { rows } = await db.query(
    'SELECT (SELECT count(*)::int FROM users) AS users, (SELECT count(*)::int FROM outbox.messages) AS messages',
  );
  expect(rows).toEqual([{ users: 0, messages: 0 }]);
});

// another Vitest takes several seconds to start
test.skipIf(!inject('isFull'))('X4 the example with Vitest passes', async () => {
  const run = runNode(
    [
      path.resolve('node_modules/vitest/vitest.mjs'),
      'run',
      '--root',
      path.resolve('examples/testing'),
    ],
    { environment: { DATABASE_URL: db.url } },
  );
  const { code, stdout, stderr } = await run.ended();
  expect(code, stdout + stderr).toBe(0);
  expect(stdout).toMatch(/3 passed/);
});
