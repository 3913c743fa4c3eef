// Results that were read and dropped are freed by minor garbage collections. If one result kept the next reachable,
// everything that a relay reads would reach the old generation and cause full collections again and again.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { expect, test } from 'vitest';

import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

test('an unused result does not keep the next result in memory', async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['test/support/read-much.mjs', '400'],
    { env: { ...process.env, NODE_OPTIONS: '', DATABASE_URL: db.url } },
  );
  // one or two happen while the program starts; otherwise there would be more than twenty
  expect(Number(stdout)).toBeLessThan(14);
});
