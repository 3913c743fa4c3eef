// The test kit works with the transaction of every driver and ORM, because its statements run on the application's own
// handle. Tested with the real packages, only with `--mode full`: test/database/testing.test.ts covers node-postgres,
// and the contract of the adapters the handles.

import path from 'node:path';

import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';

import { createOutbox, defineConfig, handler } from '../../src/index.js';
import type { TransactionHandle } from '../../src/producer/adapters/adapt.js';
import { createTestKit } from '../../src/testing/index.js';
import { runProgram } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';
import { librariesMissing, loadLibraries } from './installed.js';
import type { Library, Opened } from './library.js';

const db = testDatabase();
const isLeftOut = !inject('isFull') || librariesMissing() !== null;
const libraries = isLeftOut ? [] : await loadLibraries();
const outbox = createOutbox({ schema: db.schema });

// a file without tests is an error
test.runIf(isLeftOut)('the packages are left out', () => {});

test.skipIf(isLeftOut)('X4 the example for Drizzle passes, and leaves nothing behind', async () => {
  await db.query('CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE)');
  const ended = await runProgram(process.execPath, ['--test', 'drizzle.test.mjs'], {
    cwd: path.resolve('test/adapters/generated/examples/testing'),
    environment: { DATABASE_URL: db.url },
  }).ended(60_000);
  expect(ended, ended.stdout + ended.stderr).toMatchObject({ code: 0 });
  expect((await db.query('SELECT FROM users')).rowCount).toBe(0);
});

class RolledBack extends Error {}

describe.each(libraries.map((library) => [library.title, library] as const))(
  '%s',
  (_title, library: Library) => {
    let opened: Opened<TransactionHandle>;
    beforeAll(async () => {
      opened = await library.open(db.url);
    });
    afterAll(() => opened.close());

    test('X4 the kit asserts, retries and delivers in its transaction', async () => {
      const names: unknown[] = [];
      const config = defineConfig({
        database: { schema: db.schema },
        destinations: {
          welcome: handler((message) => {
            names.push(message.payload, message.sequence, message.tries, message.createdAt);
          }),
        },
        routes: [{ topic: 'user.*', to: 'welcome' }],
      });
      const work = opened.transaction(async (tx) => {
        const kit = await createTestKit(tx, config);
        await outbox.enqueue(tx, {
          topic: 'user.registered',
          key: 'user-1',
          headers: { source: 'web' },
          payload: { name: 'ada ? $1 :name' },
        });
        await kit.enqueued({ payload: { name: 'ada ? $1 :name' }, headers: { source: 'web' } });
        kit.failNext('welcome', new Error('smtp is down'));
        expect(await kit.deliverAll()).toMatchObject({ failed: 1, waiting: 1 });
        await kit.advance(3_600_000);
        expect(await kit.deliverAll()).toMatchObject({ succeeded: 1, waiting: 0 });
        expect(names).toEqual([{ name: 'ada ? $1 :name' }, '1', 2, expect.any(Date)]);
        expect(await kit.deadLetters()).toEqual([]);
        await kit.reset();
        expect(await kit.messages()).toEqual([]);
        throw new RolledBack();
      });
      await expect(work).rejects.toThrow(RolledBack);
      const { rowCount } = await db.query(`SELECT FROM ${db.quoted}.destinations`);
      expect(rowCount).toBe(0);
    });
  },
);
