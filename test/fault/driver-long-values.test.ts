// A value longer than the longest string of Node does not end the process: the query fails with the driver's error, and
// the pool continues with another connection. Only `npm run test:full` runs this file, because it reads a gigabyte.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { expect, test } from 'vitest';

import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

test('a value that is too long to be read fails its query, and the next query succeeds', async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['test/support/read-too-long.mjs'],
    { env: { ...process.env, DATABASE_URL: db.url } },
  );
  const code = 'ERR_STRING_TOO_LONG';
  expect(JSON.parse(stdout)).toEqual({ pool: code, direct: code, one: 1 });
}, 600_000);
