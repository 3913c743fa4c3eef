// Statements that change a single row have a query of their own, made with the watch. It makes the same messages as the
// query for many rows, and is used only while it fits the table.

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { events, quote, watch, watchedTable } from '../support/watch.js';
import type { Event } from '../support/watch.js';

const db = testDatabase();

/** How often a statement calls watch_names: only the query for many rows needs the current names. */
async function namesRead(statement: string): Promise<number> {
  const client = await db.connect();
  try {
    await client.query("SET track_functions = 'all'");
    const count = async (): Promise<number> => {
      await client.query('SELECT pg_stat_force_next_flush()');
      const { rows } = await client.query<{ calls: number }>(
        `SELECT coalesce(sum(calls), 0)::int AS calls FROM pg_stat_user_functions
          WHERE schemaname = $1 AND funcname = 'watch_names'`,
        [db.schema],
      );
      return only(rows).calls;
    };
    const before = await count();
    await client.query(statement);
    return (await count()) - before;
  } finally {
    await client.end();
  }
}

describe('a single row', () => {
  const definitions: [string, Record<string, unknown>][] = [
    ['without options', {}],
    ['with columns', { columns: ['a', 'm', 'd', 'at', 'x%s'], when_changed: ['m', 'x%s'] }],
    ['with old values', { columns: ['a', 'm', 'd', 'at', 'x%s'], old_values: true }],
    ['with a tenant and a key', { tenant: 'a', key: 'm', namespace: 'shop' }],
    ['with an aggregate', { aggregate_type: "50% o'f", aggregate_id: 'x%s' }],
    ['with other events', { created: 'born', changed: 'grown', deleted: 'gone' }],
    ['without some events', { created: null, changed: null }],
  ];
  it.each(definitions)('N1 N3 makes the same messages as many rows: %s', async (_what, options) => {
    const name = `same_${definitions.findIndex(([what]) => what === _what)}`;
    await db.query(`CREATE TYPE ${name}_mood AS ENUM ('ok', 'bad'); CREATE DOMAIN ${name}_small AS int;
      CREATE TABLE ${name} (a text, b boolean, m ${name}_mood, d ${name}_small, at timestamptz, "x%s" text, note text,
        PRIMARY KEY (a, b))`);
    await watch(db, name, name, options);
    const made: Event[][] = [];
    // the second time, a second row makes it a statement of many
    for (const second of ['', `, ('other', true, 'ok', 0, now(), '', '')`]) {
      await db.query(
        `INSERT INTO ${name} VALUES ('acme', true, 'ok', 5, '2026-01-01', '', 'x')${second}`,
      );
      await db.query(`UPDATE ${name} SET note = note || 'y'`);
      await db.query(`UPDATE ${name} SET m = 'bad', "x%s" = repeat('long', 100), d = NULL`);
      await db.query(`UPDATE ${name} SET b = false, note = 'moved'`);
      await db.query(`UPDATE ${name} SET a = ''`.concat(second && ` WHERE a = 'acme'`));
      await db.query(`DELETE FROM ${name}`);
      const found = await events(db, name);
      made.push(
        found
          .filter(({ payload }) => !payload.recordId.includes('other'))
          .slice(made.flat().length),
      );
    }
    expect(made[0]?.length).toBeGreaterThan(2);
    expect(made[1]).toEqual(made[0]);
  });

  it('N1 uses its own query until a column is renamed', async () => {
    const table = await watchedTable(db, { columns: ['status'] });
    expect(await namesRead(`INSERT INTO ${table} VALUES (1, 'new')`)).toBe(0);
    expect(await namesRead(`UPDATE ${table} SET status = 'done'`)).toBe(0);
    expect(await namesRead(`UPDATE ${table} SET note = 'x'`)).toBe(0);
    await db.query(`ALTER TABLE ${table} RENAME TO ${table}_moved`);
    expect(await namesRead(`DELETE FROM ${table}_moved`)).toBe(0);
    await db.query(`ALTER TABLE ${table}_moved RENAME status TO state`);
    await db.query(`ALTER TABLE ${table}_moved RENAME note TO status`);
    expect(await namesRead(`INSERT INTO ${table}_moved VALUES (2, 'new', 'other')`)).toBe(1);
    expect((await events(db, table)).map(({ payload }) => payload.record)).toEqual([
      { status: 'new' },
      { status: 'done' },
      { status: 'done' },
      { status: 'new' },
    ]);
  });
});

describe('a transaction that is older than a change of the table', () => {
  it.each([1, 2])('N1 is refused instead of reading another column: %i rows', async (rows) => {
    const table = await watchedTable(db, { columns: ['status'] });
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
    await db.query(`ALTER TABLE ${table} RENAME status TO state`);
    await db.query(`ALTER TABLE ${table} RENAME note TO status`);
    const insert = `INSERT INTO ${table} SELECT n, 'state', 'status' FROM generate_series(1, ${rows}) n`;
    await expect(client.query(insert)).rejects.toMatchObject({ code: '40001' });
    await client.query('ROLLBACK');
    await client.query(insert);
    await client.end();
    expect((await events(db, table)).map(({ payload }) => payload.record)).toEqual(
      Array.from({ length: rows }, () => ({ status: 'state' })),
    );
  });

  it("N11 runs no cast of the table's owner with Waybill's rights", async () => {
    const table = await watchedTable(db, { columns: ['status'], key: 'status' });
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
    const { rows } = await db.query<{ name: string }>(
      `SELECT tgname AS name FROM pg_trigger WHERE tgrelid = '${table}'::regclass AND tgname LIKE '%columns'`,
    );
    await db.query(`CREATE TYPE trap AS ENUM ('a'); CREATE TABLE trapped (who text); GRANT ALL ON trapped TO PUBLIC;
      CREATE FUNCTION spring(trap) RETURNS text LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'sprung by %', current_user; END $$;
      CREATE CAST (trap AS text) WITH FUNCTION spring(trap);
      DROP TRIGGER ${quote(only(rows).name)} ON ${table};
      ALTER TABLE ${table} ALTER status TYPE trap USING 'a'`);
    await expect(client.query(`INSERT INTO ${table} VALUES (1, 'a')`)).rejects.toMatchObject({
      code: '40001',
    });
    await client.end();
  });
});
