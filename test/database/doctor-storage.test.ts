// The doctor's findings about tables, indexes and partitions. Each is really caused, and fixed by the printed remedy.

import { expect, it } from 'vitest';

import { declaredIn } from '../../src/doctor/declared.js';
import { readSqlFiles } from '../../src/database/sql-files.js';
import { expectWell, follow, look, untilState } from '../support/doctor.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ allPartitions: true });

it('the objects in the migrations are those of a migrated database', async () => {
  const { migrations, definitions } = readSqlFiles();
  const declared = declaredIn(migrations, definitions);
  const { rows: tables } = await db.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace
        AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'applied_files'`,
    [db.quoted],
  );
  expect(declared.tables.toSorted()).toEqual(tables.map(({ name }) => name).toSorted());
  const { rows: indexes } = await db.query<{ name: string }>(
    `SELECT t.relname || '.' || i.relname AS name FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
       JOIN pg_class t ON t.oid = x.indrelid
      WHERE i.relnamespace = $1::text::regnamespace AND NOT i.relispartition AND t.relname <> 'applied_files'
        AND NOT EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = i.oid)`,
    [db.quoted],
  );
  expect(declared.indexes.map(({ name, table }) => `${table}.${name}`).toSorted()).toEqual(
    indexes.map(({ name }) => name).toSorted(),
  );
  const { rows: others } = await db.query<{ name: string }>(
    `SELECT DISTINCT 'function ' || p.proname AS name FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace
     UNION SELECT 'view ' || c.relname FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'v'`,
    [db.quoted],
  );
  expect(declared.definitions.map(({ kind, name }) => `${kind} ${name}`).toSorted()).toEqual(
    others.map(({ name }) => name).toSorted(),
  );
});

it('dead rows of a hot table that vacuum does not remove are found', async () => {
  await expectWell(db, 'dead_rows');
  const queue = await makeQueue(db);
  const client = await db.connect();
  await client.query(`ALTER TABLE ${db.quoted}.deliveries SET (autovacuum_enabled = false)`);
  await client.query(
    `INSERT INTO ${db.quoted}.deliveries (message_id, available_at, bytes, destination_id, namespace)
     SELECT gen_random_uuid(), now(), 1, $1, 'default' FROM generate_series(1, 25000)`,
    [queue.id],
  );
  await client.query(`DELETE FROM ${db.quoted}.deliveries WHERE destination_id = $1`, [queue.id]);
  await client.query('SELECT pg_stat_force_next_flush()');
  const finding = await untilState(db, 'dead_rows', 'warning');
  expect(finding.found).toMatch(/deliveries has 25000 dead rows and 0 living ones/);
  await follow(db, finding);
  await untilState(db, 'dead_rows', 'ok');
  await client.query(`ALTER TABLE ${db.quoted}.deliveries RESET (autovacuum_enabled)`);
});

it('dead rows below a fifth of the living ones are no finding', async () => {
  const limits = { deadRows: 100 };
  const client = await db.connect();
  await client.query(`ALTER TABLE ${db.quoted}.lane_tickets SET (autovacuum_enabled = false)`);
  await client.query(
    `INSERT INTO ${db.quoted}.lane_tickets (key_id, destination_id) SELECT n, 1 FROM generate_series(1, 2000) n`,
  );
  const remove = async (upTo: number) => {
    await client.query(`DELETE FROM ${db.quoted}.lane_tickets WHERE key_id <= $1`, [upTo]);
    await client.query('SELECT pg_stat_force_next_flush()');
    await waitFor(
      async () => {
        const { rows } = await db.query<{ dead: number }>(
          `SELECT n_dead_tup::int AS dead FROM pg_stat_all_tables WHERE relid = $1::text::regclass`,
          [`${db.quoted}.lane_tickets`],
        );
        return rows[0]?.dead === upTo;
      },
      { what: `${upTo} dead rows to be counted` },
    );
  };
  await remove(300);
  await expectWell(db, 'dead_rows', { limits });
  await remove(500);
  expect(await look(db, 'dead_rows', { limits })).toMatchObject({ state: 'warning' });
  await expectWell(db, 'dead_rows');
  await client.query(`DELETE FROM ${db.quoted}.lane_tickets`);
});

it.each([
  ['an index', 'deliveries_due', 'DROP INDEX $schema.deliveries_due'],
  ['an index of a partitioned table', 'messages_by_topic', 'DROP INDEX $schema.messages_by_topic'],
  ['a primary key', 'leases_pkey', 'ALTER TABLE $schema.leases DROP CONSTRAINT leases_pkey'],
  [
    'a unique constraint',
    'routes_destination_id_topic_namespace_tenant_id_owner_key',
    'ALTER TABLE $schema.routes DROP CONSTRAINT routes_destination_id_topic_namespace_tenant_id_owner_key',
  ],
])('%s that is missing is found, and created again as it was', async (_what, name, damage) => {
  const definition = async () => {
    const { rows } = await db.query(
      `SELECT pg_get_indexdef(i.oid) AS text FROM pg_class i
        WHERE i.relnamespace = $1::text::regnamespace AND i.relname = $2`,
      [db.quoted, name],
    );
    return rows;
  };
  const before = await definition();
  expect(before).toHaveLength(1);
  await expectWell(db, 'indexes_missing');
  await db.query(damage.replace('$schema', () => db.quoted));
  const finding = await look(db, 'indexes_missing');
  expect(finding).toMatchObject({ state: 'error' });
  expect(finding.found).toMatch(new RegExp(`^missing: ${name} on \\w+$`));
  await follow(db, finding);
  await expectWell(db, 'indexes_missing');
  expect(await definition()).toEqual(before);
});

it('an index whose concurrent build failed is found, and dropped if it is not of Waybill', async () => {
  await expectWell(db, 'indexes_invalid');
  await db.query(`INSERT INTO ${db.quoted}.unrouted_messages SELECT gen_random_uuid()`);
  const client = await db.connect();
  await expect(
    client.query(
      `CREATE UNIQUE INDEX CONCURRENTLY broken ON ${db.quoted}.unrouted_messages ((1 / (length(message_id::text) - 36)))`,
    ),
  ).rejects.toThrow(/division by zero/);
  const finding = await look(db, 'indexes_invalid');
  expect(finding).toMatchObject({ state: 'error' });
  expect(finding.found).toMatch(/^not valid: broken;/);
  expect(finding.paste).toEqual([expect.stringMatching(/^DROP INDEX CONCURRENTLY .*broken;$/)]);
  await follow(db, finding);
  await expectWell(db, 'indexes_invalid');
  await db.query(`DELETE FROM ${db.quoted}.unrouted_messages`);
});

it('an invalid index of Waybill is rebuilt', async () => {
  await db.query(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = $1::text::regclass`, [
    `${db.quoted}.deliveries_due`,
  ]);
  const finding = await look(db, 'indexes_invalid');
  expect(finding.paste).toEqual([
    expect.stringMatching(/^REINDEX INDEX CONCURRENTLY .*deliveries_due;$/),
  ]);
  await follow(db, finding);
  await expectWell(db, 'indexes_invalid');
});

it('an index that is being built is not counted as left behind', async () => {
  const writer = await db.connect();
  await writer.query(`BEGIN; INSERT INTO ${db.quoted}.unrouted_messages SELECT gen_random_uuid()`);
  const builder = await db.connect();
  const built = builder.query(
    `CREATE INDEX CONCURRENTLY coming ON ${db.quoted}.unrouted_messages (message_id)`,
  );
  const invalid = async () => {
    const { rows } = await db.query(
      `SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid`,
      [`${db.quoted}.coming`],
    );
    return rows.length > 0;
  };
  await waitFor(invalid, { what: 'the index to be half built' });
  await expectWell(db, 'indexes_invalid');
  expect(await invalid(), 'it was still being built').toBe(true);
  await writer.query('ROLLBACK');
  await built;
  await db.query(`DROP INDEX ${db.quoted}.coming`);
});

it.each([
  ['a day next month', 20, 'warning'],
  ['tomorrow', 1, 'error'],
] as const)('%s without a partition is found', async (_what, ahead, state) => {
  await expectWell(db, 'partitions_missing');
  const { rows } = await db.query<{ day: string }>(
    `SELECT to_char((now() AT TIME ZONE 'UTC')::date + $1::int, 'YYYYMMDD') AS day`,
    [ahead],
  );
  await db.query(`DROP TABLE ${db.quoted}.attempts_${rows[0]?.day}`);
  const finding = await look(db, 'partitions_missing');
  expect(finding).toMatchObject({ state });
  expect(finding.found).toMatch(new RegExp(`^missing: attempts_${rows[0]?.day};`));
  await follow(db, finding);
  await expectWell(db, 'partitions_missing');
});

it('a default partition is found, and with rows it is an error; the remedy moves the rows', async () => {
  await expectWell(db, 'default_partition');
  const { rows: days } = await db.query<{ day: string }>(
    `SELECT to_char((now() AT TIME ZONE 'UTC')::date, 'YYYYMMDD') AS day`,
  );
  await db.query(`CREATE TABLE ${db.quoted}.catch_all PARTITION OF ${db.quoted}.messages DEFAULT`);
  expect(await look(db, 'default_partition')).toMatchObject({ state: 'warning' });

  await db.query(`DROP TABLE ${db.quoted}.messages_${days[0]?.day}`);
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne();
  const finding = await look(db, 'default_partition');
  expect(finding).toMatchObject({ state: 'error' });
  expect(finding.found).toMatch(/catch_all, with rows in .*catch_all;/);
  await follow(db, finding);
  await expectWell(db, 'default_partition');
  await expectWell(db, 'partitions_missing');
  const { rows } = await db.query(
    `SELECT tableoid::regclass::text LIKE '%messages_' || $2 || '%' AS right FROM ${db.quoted}.messages WHERE id = $1`,
    [id, days[0]?.day],
  );
  expect(rows).toEqual([{ right: true }]);
});
