// What is read from the database and dropped again is cleared away in passing, by the small collections of young
// memory. If one result kept the next, all that a relay reads would go through old memory, and all of that would
// have to be cleaned again and again.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { expect, test } from 'vitest';

import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

test('a result that nobody holds any more does not keep the next one', async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['test/support/read-much.mjs', '400'],
    { env: { ...process.env, NODE_OPTIONS: '', DATABASE_URL: db.url } },
  );
  // one or two are made while the program starts; it were more than twenty
  expect(Number(stdout)).toBeLessThan(14);
});
