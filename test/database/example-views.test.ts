// The views of all examples: none of them gives its readers rights that they do not have on Waybill's tables.

import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { beforeAll, describe, expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { installChat } from '../support/chat.js';
import { install } from '../support/payments.js';
import { testDatabase } from '../support/postgres.js';
import type { TestDatabase } from '../support/postgres.js';

const files = readdirSync('examples', { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.(sql|mjs|ts|js)$/.test(file))
  .toSorted();

/** The views that a file of these examples creates, in whatever language. */
function namedIn(examples: string[]): string[] {
  return files
    .filter((file) => examples.includes(file.replace(/[/\\].*/, '')))
    .map((file) => readFileSync(path.join('examples', file), 'utf8'))
    .flatMap((text) => [...text.matchAll(/CREATE\s+(?:OR\s+REPLACE\s+)?VIEW\s+([\w.]+)/gi)])
    .map(([, name = '']) => name)
    .toSorted();
}

const inOneDatabase = ['cataloguing', 'chat-usage', 'crm', 'registrations'];

it('the examples with views are those below', () => {
  const all = [...new Set(files.map((file) => file.replace(/[/\\].*/, '')))];
  const withViews = all.filter((example) => namedIn([example]).length > 0);
  expect(withViews).toEqual([...inOneDatabase, 'payments'].toSorted());
});

describe.each([
  ['examples that share a database', inOneDatabase, installAll],
  ['payments, with its own roles', ['payments'], install],
])('%s', (_, examples, prepare) => {
  const db = testDatabase();
  beforeAll(() => prepare(db));

  it('N8 P13 every view reads with the rights of its reader', async () => {
    const { rows } = await db.query<{ name: string; invoker: boolean }>(
      `SELECT format('%s.%s', n.nspname, c.relname) AS name,
              coalesce('security_invoker=true' = ANY (c.reloptions), false) AS invoker
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'v' AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'outbox')`,
    );
    expect(rows.map(({ name }) => name).toSorted()).toEqual(namedIn(examples));
    expect(rows.filter(({ invoker }) => !invoker)).toEqual([]);
  });

  it('N8 P13 a role that may read the views, and nothing of Waybill, reads nothing', async () => {
    const stranger = `reader_${randomUUID().slice(0, 8)}`;
    await db.query(`CREATE ROLE ${stranger}`);
    const client = await db.connect();
    for (const name of namedIn(examples)) {
      await db.query(`GRANT USAGE ON SCHEMA ${name.replace(/\..*/, '')} TO ${stranger};
        GRANT SELECT ON ${name} TO ${stranger}`);
      await client.query(`SET ROLE ${stranger}`);
      await expect(client.query(`SELECT * FROM ${name}`), name).rejects.toMatchObject({
        code: '42501',
      });
      await client.query('RESET ROLE');
    }
    await db.query(`DROP OWNED BY ${stranger}; DROP ROLE ${stranger}`);
  });
});

async function installAll(db: TestDatabase): Promise<void> {
  await migrateUp({ url: db.url });
  for (const example of inOneDatabase)
    if (example === 'chat-usage') await installChat(db, ['schema.sql']);
    else await db.query(readFileSync(path.join('examples', example, 'schema.sql'), 'utf8'));
}
