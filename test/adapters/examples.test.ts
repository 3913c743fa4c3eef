// Runs the code of docs/start/adapters.md. Each example registers a user and enqueues a message with the real package.
// A user that the database refuses leaves no message behind.

import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import path from 'node:path';

import { beforeAll, describe, expect, test } from 'vitest';

import type { ClaimedMessage, Enqueued, Processed } from '../../src/index.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { librariesMissing } from './installed.js';

type Example = {
  register: (email: string) => Promise<Enqueued>;
  welcome?: (message: Partial<ClaimedMessage>) => Promise<Processed<unknown>>;
  close: () => Promise<void>;
};

const db = testDatabase();
const folder = path.resolve('examples/adapters');
const examples = readdirSync(folder).filter((name) => name.endsWith('.mjs'));

async function load(name: string): Promise<Example> {
  return (await import(path.resolve('test/adapters/generated/examples/adapters', name))) as Example;
}

describe.skipIf(librariesMissing() !== null)('the examples of drivers and ORMs', () => {
  beforeAll(async () => {
    process.env['DATABASE_URL'] = db.url;
    await db.query('CREATE TABLE users (id serial PRIMARY KEY, email text NOT NULL UNIQUE)');
    await db.query('CREATE TABLE welcomes (email text NOT NULL)');
  });

  test('there is an example for each library', () => {
    expect(examples).toHaveLength(8);
  });

  test.each(examples)('M1 %s', async (name) => {
    const { register, welcome, close } = await load(name);
    try {
      const email = `${name}@example.com`;
      const { id } = await register(email);
      const { rows } = await db.query(
        `SELECT m.payload, u.id AS "userId" FROM ${db.quoted}.messages m JOIN users u
           ON m.payload ->> 'email' = u.email WHERE m.id = $1`,
        [id],
      );
      const { payload, userId } = only(rows) as { payload: unknown; userId: number };
      expect(payload).toEqual({ userId, email });
      await expect(register(email)).rejects.toThrow(/unique|Failed query/i);
      const count = `SELECT count(*)::int AS count FROM ${db.quoted}.messages WHERE payload ->> 'email' = $1`;
      expect((await db.query(count, [email])).rows).toEqual([{ count: 1 }]);
      await checkInbox(welcome);
    } finally {
      await close();
    }
  });
});

/** An example with an inbox welcomes the user once. */
async function checkInbox(welcome: Example['welcome']): Promise<void> {
  if (welcome === undefined) return;
  const message = { id: randomUUID(), payload: { email: 'ada@example.com' } };
  expect(await welcome(message)).toMatchObject({ processed: true });
  expect(await welcome(message)).toMatchObject({ processed: false });
  const { rows } = await db.query('SELECT email FROM welcomes');
  expect(rows).toEqual([{ email: 'ada@example.com' }]);
}
