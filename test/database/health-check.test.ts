// The health check finds and names problems; a migration fails while the check fails.

import { afterEach, describe, expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase({ allPartitions: true });

type Check = { name: string; ok: boolean; detail: string };

async function checks(): Promise<Check[]> {
  const { rows } = await db.query<Check>(`SELECT * FROM ${db.quoted}.health_check()`);
  return rows;
}

async function failed(): Promise<Check[]> {
  return (await checks()).filter((check) => !check.ok);
}

const repairs: string[] = [];
afterEach(async () => {
  for (const repair of repairs.splice(0)) await db.query(repair);
  expect(await failed()).toEqual([]);
});

async function breakWith(damage: string, repair: string): Promise<void> {
  repairs.push(repair);
  await db.query(damage);
}

describe('the health check', () => {
  it('N12 reports a result for each thing that it verified', async () => {
    const all = await checks();
    expect(all.length).toBeGreaterThanOrEqual(7);
    for (const check of all) expect(check.detail).not.toBe('');
    expect(await failed()).toEqual([]);
  });

  it.each([
    ['a function', 'EXECUTE ON FUNCTION', 'reap(int)', 'reap'],
    ['a table', 'SELECT ON TABLE', 'relays', 'relays'],
    ['a view', 'SELECT ON TABLE', 'health', 'health'],
    ['a type', 'USAGE ON TYPE', 'outcome', 'outcome'],
  ])('N12 N8 finds a right of PUBLIC on %s', async (_what, right, object, named) => {
    const target = `${right} ${db.quoted}.${object}`;
    await breakWith(`GRANT ${target} TO PUBLIC`, `REVOKE ${target} FROM PUBLIC`);
    expect(only(await failed())).toMatchObject({
      name: 'privileges',
      detail: `PUBLIC has rights on ${named}`,
    });
  });

  it('N12 N8 finds a right of PUBLIC on the schema, and the next migration revokes it', async () => {
    await db.query(`GRANT USAGE ON SCHEMA ${db.quoted} TO PUBLIC`);
    expect(only(await failed())).toMatchObject({
      name: 'privileges',
      detail: `PUBLIC has rights on ${db.schema}`,
    });
    await migrateUp({ url: db.url, schema: db.schema });
    expect(await failed()).toEqual([]);
  });

  it('N12 N8 finds a right of PUBLIC on a column', async () => {
    const target = `(payload) ON ${db.quoted}.messages`;
    await db.query(`GRANT SELECT ${target} TO PUBLIC`);
    const found = await failed();
    await db.query(`REVOKE SELECT ${target} FROM PUBLIC`);
    expect(found).toMatchObject([{ name: 'privileges' }]);
  });

  it('N12 finds a default partition, and a migration then fails', async () => {
    await breakWith(
      `SET ROLE waybill_owner; CREATE TABLE ${db.quoted}.catch_all PARTITION OF ${db.quoted}.messages DEFAULT; RESET ROLE`,
      `DROP TABLE ${db.quoted}.catch_all`,
    );
    expect(await failed()).toMatchObject([
      { name: 'no default partition' },
      { name: 'protection', detail: expect.stringMatching(/catch_all/) as string },
    ]);
    await expect(migrateUp({ url: db.url, schema: db.schema })).rejects.toThrow(
      /the health check failed: no default partition \(remove .*catch_all/,
    );
  });

  it.each([
    ['row level security off', 'ALTER TABLE', 'deliveries DISABLE ROW LEVEL SECURITY'],
    ['row level security not forced', 'ALTER TABLE', 'keys NO FORCE ROW LEVEL SECURITY'],
    ['a policy gone', 'DROP POLICY owner ON', 'leases'],
    ['attempts that can be changed', 'DROP TRIGGER append_only ON', 'attempts'],
    ['deliveries that can be truncated', 'DROP TRIGGER never_truncated ON', 'deliveries'],
  ])('N8 P5 finds %s, and a migration repairs it', async (_what, verb, rest) => {
    await db.query(`${verb} ${db.quoted}.${rest}`);
    expect(only(await failed())).toMatchObject({ name: 'protection' });
    await migrateUp({ url: db.url, schema: db.schema });
    expect(await failed()).toEqual([]);
  });

  it('N12 finds a missing table', async () => {
    const rename = (from: string, to: string): string =>
      `ALTER TABLE ${db.quoted}.${from} RENAME TO ${to}`;
    await breakWith(rename('relays', 'lost'), rename('lost', 'relays'));
    expect(only(await failed())).toMatchObject({ name: 'tables', detail: 'missing: relays' });
  });

  it('N12 finds an index that a concurrent build left invalid', async () => {
    await db.query(`INSERT INTO ${db.quoted}.unrouted_messages SELECT gen_random_uuid()`);
    repairs.push(`DROP INDEX IF EXISTS ${db.quoted}.broken`);
    const client = await db.connect();
    const build = client.query(
      `CREATE UNIQUE INDEX CONCURRENTLY broken ON ${db.quoted}.unrouted_messages ((1 / (length(message_id::text) - 36)))`,
    );
    await expect(build).rejects.toThrow(/division by zero/);
    expect(only(await failed())).toMatchObject({ name: 'indexes', detail: 'invalid: broken' });
  });

  it('N12 P13 finds a definer function without a fixed search_path', async () => {
    const signature = `${db.quoted}.notification_channel()`;
    await breakWith(
      `ALTER FUNCTION ${signature} SECURITY DEFINER RESET ALL`,
      `ALTER FUNCTION ${signature} SECURITY INVOKER SET search_path = ${db.quoted}, pg_temp`,
    );
    expect(only(await failed())).toMatchObject({
      name: 'definer functions',
      detail: 'no fixed search_path that ends in pg_temp: notification_channel',
    });
  });
});
