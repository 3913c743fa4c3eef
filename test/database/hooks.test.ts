// Hooks: the core calls the functions of features that it finds by name, and none of another owner.

import { expect, it } from 'vitest';

import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

type Query<Row> = (sql: string) => Promise<Row[]>;

/** As the owner of the schema, in a transaction that is rolled back. */
async function tried<Row>(work: (query: Query<Row>) => Promise<void>): Promise<void> {
  const client = await db.connect();
  const query: Query<Row> = async (sql) => (await client.query(sql)).rows as Row[];
  await client.query('BEGIN');
  try {
    await client.query(`SET LOCAL search_path = ${db.quoted}, pg_temp`);
    await client.query(
      `SELECT set_config('role', n.nspowner::regrole::text, true) FROM pg_namespace n WHERE n.nspname = current_schema()`,
    );
    await work(query);
  } finally {
    await client.query('ROLLBACK');
  }
}

const giftsTable = `CREATE FUNCTION tables_of_gifts() RETURNS text[] LANGUAGE sql AS $$ SELECT '{gifts}'::text[] $$`;
const tablesCheck = `SELECT ok, detail FROM health_check() WHERE name = 'tables'`;

it('P13 the rights of a feature are those of its hook, and end with it', async () => {
  await tried<{ role: string; function: string }>(async (query) => {
    const rights = () =>
      query(`SELECT role, function FROM role_functions() WHERE function = 'wrap_gift' ORDER BY 1`);
    const give = (roles: string) =>
      query(`CREATE OR REPLACE FUNCTION rights_of_gifts() RETURNS TABLE (roles text[], functions text[])
             LANGUAGE sql AS $$ VALUES ('${roles}'::text[], '{wrap_gift}'::text[]) $$`);
    await give('{relay,operator}');
    expect((await rights()).map(({ role }) => role)).toEqual(['operator', 'relay']);
    await give('{relay}');
    expect((await rights()).map(({ role }) => role)).toEqual(['relay']);
  });
});

it('the health check misses a table of a feature, and has the lines of its hook', async () => {
  await tried<{ ok: boolean; detail: string }>(async (query) => {
    expect(await query(tablesCheck)).toMatchObject([{ ok: true }]);
    await query(giftsTable);
    expect(await query(tablesCheck)).toEqual([{ ok: false, detail: 'missing: gifts' }]);
    await query(`CREATE FUNCTION checks_of_gifts() RETURNS TABLE (name text, ok boolean, detail text)
                 LANGUAGE sql AS $$ VALUES ('gifts', false, 'one is not wrapped') $$`);
    expect(await query(`SELECT ok, detail FROM health_check() WHERE name = 'gifts'`)).toEqual([
      { ok: false, detail: 'one is not wrapped' },
    ]);
  });
});

it('a function of another owner is no hook, whatever its name', async () => {
  await tried<{ ok: boolean }>(async (query) => {
    await query('RESET ROLE');
    await query(giftsTable);
    const owners = await query(
      `SELECT DISTINCT p.proowner::regrole AS owner FROM pg_proc p WHERE p.proname IN ('hooks', 'tables_of_gifts')`,
    );
    expect(owners).toHaveLength(2);
    expect(await query(tablesCheck)).toMatchObject([{ ok: true }]);
  });
});
