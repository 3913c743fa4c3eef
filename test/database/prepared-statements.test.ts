// Prepared statements: a session keeps the parsed claim, and the call still works after what made it unusable.

import { expect, it } from 'vitest';

import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase();

async function keptStatements(
  ask: (sql: string) => Promise<{ name: string }[]>,
): Promise<string[]> {
  const rows = await ask(`SELECT name FROM pg_prepared_statements WHERE name LIKE 'waybill\\_%'`);
  return rows.map(({ name }) => name);
}

it('M11 a prepared statement is parsed once in a session', async () => {
  const database = openDatabase(db);
  const ask = (sql: string) => database.query<{ name: string }>('test', sql);
  for (const n of [1, 2])
    expect(await database.query('test', 'SELECT $1::int AS n', [n], { prepared: true })).toEqual([
      { n },
    ]);
  expect(await keptStatements(ask)).toHaveLength(1);
});

it('M11 it works again after the session has forgotten it', async () => {
  const database = openDatabase(db);
  const run = () => database.query('test', 'SELECT $1::int AS n', [1], { prepared: true });
  await run();
  await database.query('test', 'DISCARD ALL');
  expect(await run()).toEqual([{ n: 1 }]);
});

it('M11 it works again after a migration has changed what a function returns', async () => {
  const database = openDatabase(db);
  await db.query(`CREATE FUNCTION kept() RETURNS TABLE (n int) LANGUAGE sql AS 'SELECT 1'`);
  const run = () => database.query<object>('test', 'SELECT * FROM kept()', [], { prepared: true });
  expect(only(await run())).toEqual({ n: 1 });
  await db.query('DROP FUNCTION kept()');
  await db.query(
    `CREATE FUNCTION kept() RETURNS TABLE (n int, more text) LANGUAGE sql AS $$SELECT 1, 'x'$$`,
  );
  expect(only(await run())).toEqual({ n: 1, more: 'x' });
});
