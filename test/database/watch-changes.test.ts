// Changes of a watched table over time: nothing is lost silently. Either PostgreSQL refuses the change, or the watch
// continues, or it is shown as broken with the remedy.

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { events, happened, problem, watch } from '../support/watch.js';

const db = testDatabase();
let tables = 0;

/** A separate watched table; its topic is its name. */
async function watchedTable(options: Record<string, unknown> = {}): Promise<string> {
  tables += 1;
  const name = `jobs_${tables}`;
  await db.query(
    `CREATE TABLE ${name} (id int PRIMARY KEY, status text, note varchar(10), tenant text)`,
  );
  await watch(db, name, name, { columns: ['status'], tenant: 'tenant', ...options });
  return name;
}

async function healthDetail(): Promise<{ ok: boolean; detail: string }> {
  const { rows } = await db.query<{ ok: boolean; detail: string }>(
    `SELECT ok, detail FROM ${db.quoted}.health_check() WHERE name = 'watches'`,
  );
  return only(rows);
}

describe('a column that the watch uses', () => {
  it.each(['status', 'tenant', 'id'])('N1 cannot be dropped unnoticed: %s', async (column) => {
    const table = await watchedTable();
    await expect(db.query(`ALTER TABLE ${table} DROP COLUMN ${column}`)).rejects.toMatchObject({
      code: '2BP01',
      detail: expect.stringContaining(`${table}_columns`) as unknown,
    });
  });

  it('N1 cannot get another type unnoticed', async () => {
    const table = await watchedTable();
    const change = db.query(`ALTER TABLE ${table} ALTER status TYPE varchar(20)`);
    await expect(change).rejects.toThrow(
      /cannot alter type of a column used in a trigger definition/,
    );
    await db.query(`ALTER TABLE ${table} DROP COLUMN note`);
  });

  it('N1 that is dropped with CASCADE stops the writers and breaks the watch', async () => {
    const table = await watchedTable();
    await db.query(`ALTER TABLE ${table} DROP COLUMN status CASCADE`);
    expect(await problem(db, table)).toMatch(/_columns on public\.jobs_\d+ is missing: watch/);
    await expect(db.query(`INSERT INTO ${table} VALUES (1)`)).rejects.toMatchObject({
      code: '55000',
      message: expect.stringMatching(/has lost its trigger .*_columns/) as unknown,
      hint: 'Watch the table again, or unwatch it.',
    });
    await watch(db, table, table, { columns: ['note'] });
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    expect(await happened(db, table)).toEqual(['created 1']);
  });

  it('N1 may be renamed: messages continue with the old name', async () => {
    const table = await watchedTable({ old_values: true });
    await db.query(`INSERT INTO ${table} VALUES (1, 'new', NULL, 'acme')`);
    await db.query(`ALTER TABLE ${table} RENAME status TO state`);
    await db.query(`ALTER TABLE ${table} RENAME note TO status`);
    await db.query(`ALTER TABLE ${table} RENAME id TO job_id`);
    await db.query(`UPDATE ${table} SET status = 'other'`);
    await db.query(`UPDATE ${table} SET state = 'done'`);
    const found = await events(db, table);
    expect(found).toHaveLength(2);
    expect(found[1]).toMatchObject({
      tenant_id: 'acme',
      payload: { recordId: '1', record: { status: 'done' }, old: { status: 'new' } },
    });
    expect(await problem(db, table)).toBeNull();
    const again = { columns: ['status'], tenant: 'tenant', old_values: true };
    expect(await watch(db, table, table, again), 'an identical watch changes nothing').toEqual([]);
  });
});

describe('the table', () => {
  it('N1 may be renamed and moved: messages continue', async () => {
    const table = await watchedTable();
    await db.query(`CREATE SCHEMA IF NOT EXISTS elsewhere;
      ALTER TABLE ${table} RENAME TO ${table}_moved; ALTER TABLE ${table}_moved SET SCHEMA elsewhere`);
    await db.query(`INSERT INTO elsewhere.${table}_moved VALUES (1)`);
    expect(only(await events(db, table))).toMatchObject({
      aggregate_type: table,
      payload: { table: `elsewhere.${table}_moved` },
    });
    expect(await problem(db, table)).toBeNull();
    const { rows } = await db.query<{ count: number }>(
      `SELECT ${db.quoted}.unwatch('elsewhere.${table}_moved') AS count`,
    );
    expect(only(rows).count).toBe(1);
  });

  it('N1 that was dropped is shown, in the health check too, until it is unwatched', async () => {
    const table = await watchedTable();
    await db.query(`DROP TABLE ${table}`);
    const words = 'the table was dropped: unwatch it, or watch the one in its place';
    expect(await problem(db, table)).toBe(words);
    expect(await healthDetail()).toEqual({
      ok: false,
      detail: `public.${table} (${table}): ${words}`,
    });
    await db.query(`SELECT ${db.quoted}.unwatch('public.${table}')`);
    expect((await healthDetail()).ok).toBe(true);
  });

  it('N1 that was rebuilt without its triggers is shown until it is watched again', async () => {
    const table = await watchedTable();
    await db.query(`CREATE TABLE rebuilt (LIKE ${table} INCLUDING ALL);
      DROP TABLE ${table}; ALTER TABLE rebuilt RENAME TO ${table}`);
    expect(await problem(db, table)).toMatch(/the table was dropped/);
    await watch(db, table, table);
    expect(await problem(db, table)).toBeNull();
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    expect(await happened(db, table)).toEqual(['created 1']);
  });

  it.each([
    [
      'a trigger is dropped',
      (t: string) => `DROP TRIGGER $update ON ${t}`,
      /_update on .* missing/,
    ],
    [
      'its triggers are disabled',
      (t: string) => `ALTER TABLE ${t} DISABLE TRIGGER USER`,
      /_insert on .* is disabled/,
    ],
    [
      'its primary key is another one',
      (t: string) =>
        `ALTER TABLE ${t} DROP CONSTRAINT ${t}_pkey; ALTER TABLE ${t} ADD PRIMARY KEY (id, status)`,
      /the primary key is another one now/,
    ],
    [
      'its primary key is gone',
      (t: string) => `ALTER TABLE ${t} DROP CONSTRAINT ${t}_pkey`,
      /has no primary key/,
    ],
    [
      'it becomes a partition',
      (t: string) => `CREATE TABLE ${t}_all (LIKE ${t}) PARTITION BY LIST (id);
        ALTER TABLE ${t}_all ATTACH PARTITION ${t} FOR VALUES IN (1)`,
      /is a partition, and statements on/,
    ],
  ])('N1 is shown as broken when %s', async (_what, damage, words) => {
    const table = await watchedTable();
    const { rows } = await db.query<{ name: string }>(
      `SELECT quote_ident(tgname) AS name FROM pg_trigger
        WHERE tgrelid = '${table}'::regclass AND tgname LIKE '%\\_update'`,
    );
    await db.query(damage(table).replace('$update', only(rows).name));
    expect(await problem(db, table)).toMatch(words);
    expect((await healthDetail()).detail).toContain(`public.${table} (${table}): `);
    await db.query(`SELECT ${db.quoted}.unwatch('public.${table}')`);
  });
});

describe('watching again', () => {
  it('N1 with the same options changes nothing, and takes no lock on the table', async () => {
    const table = await watchedTable();
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`INSERT INTO ${table} VALUES (1)`);
    expect(await watch(db, table, table, { columns: ['status'], tenant: 'tenant' })).toEqual([]);
    await client.query('ROLLBACK');
  });

  it('N1 with other options changes the watch at once, and drops what it does not need', async () => {
    const table = await watchedTable();
    const statements = await watch(db, table, table, { columns: ['note'], created: null });
    expect(statements.filter((each) => each.startsWith('DROP TRIGGER'))).toHaveLength(1);
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    await db.query(`UPDATE ${table} SET status = 'x'`);
    await db.query(`UPDATE ${table} SET note = 'x'`);
    expect(await happened(db, table)).toEqual(['changed 1']);
    await db.query(`ALTER TABLE ${table} DROP COLUMN status`);
  });

  it('N1 repairs a broken watch', async () => {
    const table = await watchedTable();
    await db.query(`ALTER TABLE ${table} DISABLE TRIGGER USER`);
    await watch(db, table, table, { columns: ['status'], tenant: 'tenant' });
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    expect(await happened(db, table)).toEqual(['created 1']);
  });

  it('N1 with another topic makes a second watch beside the first; each ends separately', async () => {
    const table = await watchedTable();
    await watch(db, table, `${table}-second`, { columns: ['note'] });
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    await db.query(`SELECT ${db.quoted}.unwatch('public.${table}', '${table}')`);
    await db.query(`INSERT INTO ${table} VALUES (2)`);
    expect(await happened(db, table)).toEqual(['created 1']);
    expect(await happened(db, `${table}-second`)).toEqual(['created 1', 'created 2']);
  });

  it('N1 waits for writers two seconds at most, then lets all sessions pass', async () => {
    const table = await watchedTable();
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`INSERT INTO ${table} VALUES (1)`);
    await expect(watch(db, table, table, { columns: ['note'] })).rejects.toMatchObject({
      code: '55P03',
    });
    await client.query('ROLLBACK');
  });

  it('N1 in a dry run shows the statements and runs none', async () => {
    await db.query('CREATE TABLE dry (id int PRIMARY KEY)');
    const statements = await watch(db, 'dry', 'dry', { dry_run: true });
    expect(statements).toHaveLength(5);
    await db.query('INSERT INTO dry VALUES (1)');
    expect(await events(db, 'dry')).toEqual([]);
    for (const statement of statements) await db.query(statement);
    await db.query('INSERT INTO dry VALUES (2)');
    expect(await happened(db, 'dry')).toEqual(['created 2']);
  });

  it('N1 an unwatched table makes no messages, and a table that is not watched cannot be unwatched', async () => {
    const table = await watchedTable();
    await db.query(`SELECT ${db.quoted}.unwatch('public.${table}')`);
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    await db.query(`TRUNCATE ${table}`);
    expect(await events(db, table)).toEqual([]);
    const { rows } = await db.query(
      `SELECT FROM pg_trigger WHERE tgrelid = '${table}'::regclass AND NOT tgisinternal`,
    );
    expect(rows).toEqual([]);
    await expect(db.query(`SELECT ${db.quoted}.unwatch('public.${table}')`)).rejects.toMatchObject({
      code: 'P0002',
      message: `"public.${table}" is not watched`,
    });
  });
});
