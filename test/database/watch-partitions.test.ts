// A partitioned table is watched as one, whichever of its tables a statement names, and also in later partitions.

import { beforeAll, expect, it } from 'vitest';

import { maintainWatches } from '../../src/features/watches/relay-part.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { events, happened, problem, quote, watch } from '../support/watch.js';

const db = testDatabase();

beforeAll(async () => {
  await db.query(`CREATE TABLE parts (id int, day int, v int, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
    CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
    CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (day);
    CREATE TABLE parts_2a (v int, gone int, day int NOT NULL, id int NOT NULL);
    ALTER TABLE parts_2a DROP COLUMN gone;
    ALTER TABLE parts_2 ATTACH PARTITION parts_2a FOR VALUES FROM (10) TO (15)`);
  await watch(db, 'parts', 'part', { columns: ['v'], truncate: 'report' });
});

it('N1 a partitioned table is watched as a whole, also when a row moves or a statement names a partition', async () => {
  await db.query('INSERT INTO parts VALUES (1, 1, 1), (2, 11, 1)');
  await db.query('UPDATE parts SET v = 2');
  await db.query('UPDATE parts_2a SET v = 3');
  await db.query('UPDATE parts_2 SET v = 4');
  await db.query('INSERT INTO parts_1 VALUES (3, 2, 1)');
  await db.query('DELETE FROM parts_1 WHERE id = 3');
  await db.query('UPDATE parts SET day = 12 WHERE id = 1');
  expect(await happened(db, 'part')).toEqual([
    'changed [1, 1]',
    'changed [2, 11]',
    'changed [2, 11]',
    'changed [2, 11]',
    'created [1, 12]',
    'created [1, 1]',
    'created [2, 11]',
    'created [3, 2]',
    'deleted [1, 1]',
    'deleted [3, 2]',
  ]);
  const found = await events(db, 'part');
  expect(new Set(found.map(({ payload }) => payload.table))).toEqual(new Set(['public.parts']));
  expect(found.filter(({ payload }) => payload.event === 'changed').at(-1)?.payload.record).toEqual(
    { v: 4 },
  );
});

it('N1 a partitioned table reports a TRUNCATE once for each partition that it emptied', async () => {
  await db.query('TRUNCATE parts');
  const found = await events(db, 'part');
  const truncated = found.filter(({ topic }) => topic === 'part.truncated');
  expect(new Set(truncated.map(({ payload }) => payload.partition))).toEqual(
    new Set(['public.parts_1', 'public.parts_2a']),
  );
  expect(truncated).toHaveLength(2);
});

it('N1 a new partition is repaired by maintenance, misses nothing written through the table before, and a detached one is forgotten', async () => {
  const database = openDatabase(db);
  const heard: RelayEvent[] = [];
  const before = await happened(db, 'part');
  await db.query(`CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (20) TO (30);
    CREATE TABLE parts_2b (LIKE parts INCLUDING ALL);
    ALTER TABLE parts_2 ATTACH PARTITION parts_2b FOR VALUES FROM (15) TO (20)`);
  await db.query('INSERT INTO parts VALUES (30, 20, 1), (31, 16, 1)');
  expect(await happened(db, 'part')).toHaveLength(before.length + 2);
  expect(await problem(db, 'part')).toMatch(
    /^partition public\.parts_(3|2b) is new, and statements that name it are not seen: /,
  );
  await maintainWatches(database, (event) => heard.push(event));
  expect(heard).toEqual([{ name: 'watches_mended', count: 2 }]);
  expect(await problem(db, 'part')).toBeNull();
  await db.query('UPDATE parts_3 SET v = 9; DELETE FROM parts_2b');
  expect(await happened(db, 'part')).toHaveLength(before.length + 4);
  await maintainWatches(database, (event) => heard.push(event));
  expect(heard, 'nothing is left to repair').toHaveLength(1);
  await db.query('ALTER TABLE parts DETACH PARTITION parts_3');
  await db.query('DELETE FROM parts_3; TRUNCATE parts_3');
  expect(await happened(db, 'part')).toHaveLength(before.length + 4);
  expect(await problem(db, 'part')).toBeNull();
});

it('N1 a new partition in use is left for the next time, and a dropped trigger for an operator', async () => {
  await db.query('CREATE TABLE parts_4 PARTITION OF parts FOR VALUES FROM (40) TO (50)');
  const writer = await db.connect();
  await writer.query('BEGIN; INSERT INTO parts_4 VALUES (40, 40, 1)');
  const mend = async () =>
    only((await db.query<{ count: number }>(`SELECT ${db.quoted}.mend_watches() AS count`)).rows)
      .count;
  expect(await mend()).toBe(0);
  await writer.query('ROLLBACK');
  expect(await mend()).toBe(1);
  const { rows } = await db.query<{ name: string }>(
    `SELECT tgname AS name FROM pg_trigger WHERE tgrelid = 'parts_4'::regclass AND tgname LIKE '%part_insert'`,
  );
  await db.query(`DROP TRIGGER ${quote(only(rows).name)} ON parts_4`);
  expect(await mend()).toBe(0);
  expect(await problem(db, 'part')).toMatch(/part_insert on public\.parts_4 is missing: watch/);
  await db.query('DROP TABLE parts_4');
});

it('N1 the parts of a partitioned table cannot be watched separately', async () => {
  await expect(watch(db, 'parts_2a', 'one')).rejects.toThrow(
    'public.parts_2a is a partition, and statements on public.parts would go unseen: watch public.parts',
  );
});
