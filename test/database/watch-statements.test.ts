// Every change of a watched table is seen: by any kind of statement and any role, of one row or many. TRUNCATE, which
// reports no rows, is refused or reported.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { events, happened, problem, watch, watchedTable } from '../support/watch.js';

const db = testDatabase();

describe('every way to write', () => {
  it('N1 makes events: upserts, MERGE, COPY, CTEs', async () => {
    const table = await watchedTable(db, { when_changed: ['status'] });
    await db.query(`COPY ${table} (id) FROM PROGRAM 'seq 3'`);
    await db.query(`INSERT INTO ${table} VALUES (3, 'up'), (4, 'up')
      ON CONFLICT (id) DO UPDATE SET status = excluded.status`);
    await db.query(`MERGE INTO ${table} t USING (VALUES (1), (2), (9)) s(id) ON t.id = s.id
      WHEN MATCHED AND s.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET status = 'merged'
      WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'merged')`);
    await db.query(`WITH gone AS (DELETE FROM ${table} WHERE id = 4 RETURNING id)
      UPDATE ${table} SET status = 'last' WHERE id = 9`);
    expect(await happened(db, table)).toEqual([
      'changed 2',
      'changed 3',
      'changed 9',
      'created 1',
      'created 2',
      'created 3',
      'created 4',
      'created 9',
      'deleted 1',
      'deleted 4',
    ]);
  });

  it('N1 makes events: other triggers and cascades', async () => {
    const parent = await watchedTable(db);
    await db.query(`CREATE TABLE ${parent}_parts (id int PRIMARY KEY,
      parent int REFERENCES ${parent} ON DELETE CASCADE)`);
    await watch(db, `${parent}_parts`, 'parts');
    await db.query(`CREATE FUNCTION add_part() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN INSERT INTO ${parent}_parts VALUES (NEW.id * 10, NEW.id); RETURN NULL; END $$`);
    await db.query(`CREATE TRIGGER add_part AFTER INSERT ON ${parent}
      FOR EACH ROW EXECUTE FUNCTION add_part()`);
    await db.query(`INSERT INTO ${parent} VALUES (1), (2)`);
    await db.query(`DELETE FROM ${parent} WHERE id = 1`);
    expect(await happened(db, 'parts')).toEqual(['created 10', 'created 20', 'deleted 10']);
    expect(await happened(db, parent)).toEqual(['created 1', 'created 2', 'deleted 1']);
  });

  it('N1 makes no loop: watching a table of Waybill is refused', async () => {
    for (const name of ['messages', 'deliveries', 'watches'])
      await expect(watch(db, `${db.quoted}.${name}`, 'self')).rejects.toMatchObject({
        code: '22023',
        message: expect.stringMatching(
          /is a table of Waybill itself.*watch a table of the app/,
        ) as unknown,
      });
  });

  it('N1 needs no right in the schema of Waybill', async () => {
    const table = await watchedTable(db, { columns: ['status'], old_values: true });
    const writer = `writer_${randomUUID().slice(0, 8)}`;
    await db.query(`CREATE ROLE ${writer} LOGIN; GRANT ALL ON ${table} TO ${writer}`);
    onTestFinished(async () => {
      await db.query(`DROP OWNED BY ${writer}; DROP ROLE ${writer}`);
    });
    const url = new URL(db.url);
    url.username = writer;
    const client = new pg.Client({ connectionString: url.href });
    await client.connect();
    try {
      // objects of the writer must not shadow ours
      await client.query(
        `CREATE TEMP TABLE messages (id int); CREATE TEMP TABLE pg_trigger (id int)`,
      );
      await client.query(`SET search_path = pg_temp, public`);
      await client.query(`INSERT INTO ${table} VALUES (1, 'new')`);
      await client.query(`UPDATE ${table} SET status = 'done'`);
      await client.query(`DELETE FROM ${table}`);
      const call = client.query(`SELECT * FROM ${db.quoted}.watch('${table}', 'x')`);
      await expect(call).rejects.toMatchObject({ code: '42501' });
    } finally {
      await client.end();
    }
    expect(await happened(db, table)).toEqual(['changed 1', 'created 1', 'deleted 1']);
  });

  it('N1 runs none of the table owner’s code with the rights of Waybill', async () => {
    await db.query(`CREATE TYPE mood AS ENUM ('ok');
      CREATE TABLE moods (id mood PRIMARY KEY, m mood);
      CREATE TABLE caught (who text);
      CREATE FUNCTION catch_json(mood) RETURNS json LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO caught VALUES (current_user); RETURN '1'; END $$;
      CREATE FUNCTION catch_text(mood) RETURNS text LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO caught VALUES (current_user); RETURN 'x'; END $$;
      CREATE CAST (mood AS json) WITH FUNCTION catch_json(mood);
      CREATE CAST (mood AS text) WITH FUNCTION catch_text(mood)`);
    await watch(db, 'moods', 'mood', { columns: ['m'], key: 'm', tenant: 'm', old_values: true });
    await db.query(`INSERT INTO moods VALUES ('ok', 'ok'); UPDATE moods SET m = NULL`);
    expect((await db.query('SELECT * FROM caught')).rows).toEqual([]);
    expect(await events(db, 'mood')).toMatchObject([
      { key: 'ok', tenant_id: 'ok', payload: { recordId: 'ok', record: { m: 'ok' } } },
      { key: null, payload: { recordId: 'ok', record: { m: null }, old: { m: 'ok' } } },
    ]);
  });
});

describe('a statement that changes many rows', () => {
  it('N2 makes 10,000 durable messages with as many statements as for one row', async () => {
    const table = await watchedTable(db, { columns: ['status'] });
    const client = await db.connect();
    await client.query("SET track_functions = 'all'");
    const calls = async (sql: string): Promise<number> => {
      await client.query('SELECT pg_stat_force_next_flush()');
      const before = await count();
      await client.query(sql);
      await client.query('SELECT pg_stat_force_next_flush()');
      return (await count()) - before;
    };
    const count = async (): Promise<number> => {
      const { rows } = await client.query<{ calls: number }>(
        `SELECT coalesce(sum(calls), 0)::int AS calls FROM pg_stat_user_functions
          WHERE schemaname = $1 AND funcname IN ('enqueue_many', 'watch_event', 'notify_relays')`,
        [db.schema],
      );
      return only(rows).calls;
    };
    const one = await calls(`INSERT INTO ${table} VALUES (0, 'new')`);
    expect(one).toBeGreaterThan(0);
    expect(
      await calls(`INSERT INTO ${table} SELECT n, 'new' FROM generate_series(1, 9999) n`),
    ).toBe(one);
    expect(await calls(`UPDATE ${table} SET status = 'done'`)).toBe(one);
    const found = await events(db, table);
    expect(found).toHaveLength(20_000);
    expect(new Set(found.map(({ payload }) => payload.recordId)).size).toBe(10_000);
    await client.end();
  });

  it('N2 makes batches of 10,000 for more rows, and loses none', async () => {
    const table = await watchedTable(db);
    await db.query(`INSERT INTO ${table} SELECT n FROM generate_series(1, 20001) n`);
    const ids = (await events(db, table)).map(({ payload }) => Number(payload.recordId));
    expect(ids).toEqual(Array.from({ length: 20_001 }, (_, index) => index + 1));
  });

  it('N2 makes no message if it changes no row', async () => {
    const table = await watchedTable(db);
    await db.query(`UPDATE ${table} SET note = 'x'`);
    await db.query(`DELETE FROM ${table}`);
    expect(await events(db, table)).toEqual([]);
  });
});

describe('TRUNCATE', () => {
  it('N1 is refused with the remedy', async () => {
    const table = await watchedTable(db);
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    await expect(db.query(`TRUNCATE ${table}`)).rejects.toMatchObject({
      code: '55000',
      message: expect.stringContaining(`public.${table} is watched (${table}.deleted)`) as unknown,
      hint: expect.stringMatching(/Use DELETE.*"report"/) as unknown,
    });
    expect((await db.query(`SELECT FROM ${table}`)).rowCount).toBe(1);
  });

  it('N1 is reported by one message, if configured', async () => {
    const table = await watchedTable(db, { truncate: 'report', namespace: 'shop' });
    await db.query(`INSERT INTO ${table} VALUES (1), (2)`);
    await db.query(`TRUNCATE ${table}`);
    expect((await events(db, table)).at(-1)).toMatchObject({
      topic: `${table}.truncated`,
      namespace: 'shop',
      payload: { table: `public.${table}`, event: 'truncated' },
    });
  });
});

describe('a transaction that is older than the watch', () => {
  it('N1 fails in REPEATABLE READ and must be retried; nothing goes unseen', async () => {
    await db.query('CREATE TABLE late (id int PRIMARY KEY)');
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
    await watch(db, 'late', 'late');
    await expect(client.query('INSERT INTO late VALUES (1)')).rejects.toMatchObject({
      code: '40001',
      message:
        'the watch late of public.late, or the table itself, is newer than this transaction: try again',
    });
    await client.query('ROLLBACK');
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await client.query('INSERT INTO late VALUES (1)');
    await client.query('COMMIT');
    expect(await happened(db, 'late')).toEqual(['created 1']);
    expect(await problem(db, 'late')).toBeNull();
  });
});
