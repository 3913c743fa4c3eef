// Watching a table: its changes make messages in the same transaction, with any writer and any number of rows per
// statement. Tests which changes make a message, and what the messages contain.

import { beforeAll, describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { events, happened, watch, watchedTable } from '../support/watch.js';

const db = testDatabase();

beforeAll(async () => {
  await db.query(`CREATE TABLE cataloguing_jobs (
    job_id bigint PRIMARY KEY, organization_id text, status text, email text, updated_at timestamptz)`);
  await watch(db, 'cataloguing_jobs', 'job', {
    key: 'job_id',
    tenant: 'organization_id',
    columns: ['status', 'job_id'],
    when_changed: ['status'],
    changed: 'status_changed',
  });
});

describe('the events of a watched table', () => {
  it('N1 N3 W1 name the table, the record, the event, the tenant and the chosen columns', async () => {
    await db.query(
      `INSERT INTO cataloguing_jobs VALUES (7, 'acme', 'new', 'ada@example.com', now())`,
    );
    await db.query(`UPDATE cataloguing_jobs SET status = 'done' WHERE job_id = 7`);
    await db.query('DELETE FROM cataloguing_jobs WHERE job_id = 7');
    const common = {
      namespace: 'default',
      tenant_id: 'acme',
      key: '7',
      aggregate_type: 'cataloguing_jobs',
      aggregate_id: '7',
    };
    const payload = (event: string, status: string) => ({
      table: 'public.cataloguing_jobs',
      recordId: '7',
      event,
      record: { job_id: 7, status },
    });
    expect(await events(db, 'job')).toEqual([
      { topic: 'job.created', ...common, payload: payload('created', 'new') },
      { topic: 'job.status_changed', ...common, payload: payload('status_changed', 'done') },
      { topic: 'job.deleted', ...common, payload: payload('deleted', 'done') },
    ]);
  });

  it('N3 have only the primary key in the payload unless columns are named', async () => {
    const table = await watchedTable(db);
    await db.query(`INSERT INTO ${table} VALUES (1, 'new', 'private')`);
    expect(only(await events(db, table)).payload.record).toEqual({ id: 1 });
  });

  it('N1 are rolled back with the change', async () => {
    const table = await watchedTable(db);
    const change = db.inTransaction(async (client) => {
      await client.query(`INSERT INTO ${table} VALUES (1)`);
      expect(await events(db, table, client)).toHaveLength(1);
      throw new Error('changed my mind');
    });
    await expect(change).rejects.toThrow('changed my mind');
    expect(await events(db, table)).toEqual([]);
  });

  it('N1 go where the routes say, like every message', async () => {
    const queue = await makeQueue(db);
    await db.query(`CREATE TABLE routed (id int PRIMARY KEY)`);
    await watch(db, 'routed', queue.topic, { created: 'made' });
    await db.query(
      `INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES (${queue.id}, '${queue.topic}.made')`,
    );
    await db.query('INSERT INTO routed VALUES (1)');
    expect(await queue.waiting()).toHaveLength(1);
  });

  it('W1 have the configured aggregate, namespace and names', async () => {
    await db.query('CREATE TABLE pairs (id int PRIMARY KEY, pair_id text, url text)');
    await watch(db, 'pairs', 'pair', {
      aggregate_type: 'pair',
      aggregate_id: 'pair_id',
      namespace: 'site',
      created: 'registered',
      deleted: null,
    });
    await db.query(`INSERT INTO pairs VALUES (1, 'p-1', 'a'); UPDATE pairs SET url = 'b'`);
    await db.query('DELETE FROM pairs');
    const found = await events(db, 'pair');
    expect(found.map(({ topic }) => topic)).toEqual(['pair.registered', 'pair.changed']);
    expect(found[0]).toMatchObject({
      namespace: 'site',
      aggregate_type: 'pair',
      aggregate_id: 'p-1',
      key: null,
      tenant_id: null,
    });
  });

  it('W1 are found by their aggregate through an index', async () => {
    await db.inTransaction(async (client) => {
      await client.query('SET LOCAL enable_seqscan = off');
      const { rows } = await client.query(
        `EXPLAIN SELECT FROM ${db.quoted}.messages WHERE aggregate_type = 'pair' AND aggregate_id = 'p-1'`,
      );
      expect(JSON.stringify(rows)).toMatch(/messages_\d+_aggregate_id_/);
    });
  });

  it('W1 omit an empty tenant, an empty key and an aggregate id that is too long', async () => {
    await db.query('CREATE TABLE sparse (id text PRIMARY KEY, tenant text, k text)');
    await watch(db, 'sparse', 'sparse', { tenant: 'tenant', key: 'k' });
    const long = 'x'.repeat(300);
    await db.query(`INSERT INTO sparse VALUES ($1, '', ''), ('', NULL, NULL)`, [long]);
    const none = { tenant_id: null, key: null, aggregate_type: null, aggregate_id: null };
    expect(await events(db, 'sparse')).toMatchObject([
      { ...none, payload: { recordId: long } },
      { ...none, payload: { recordId: '' } },
    ]);
  });
});

describe('an update', () => {
  it('N1 that does not change the watched columns makes no message, also where they are null', async () => {
    const table = await watchedTable(db, { when_changed: ['status'] });
    await db.query(`INSERT INTO ${table} VALUES (1, 'new'), (2, NULL), (3, NULL)`);
    await db.query(`UPDATE ${table} SET note = 'x', status = status`);
    await db.query(`UPDATE ${table} SET status = 'new' WHERE id = 2`);
    await db.query(`UPDATE ${table} SET status = NULL WHERE id IN (1, 3)`);
    expect(await happened(db, table)).toEqual([
      'changed 1',
      'changed 2',
      'created 1',
      'created 2',
      'created 3',
    ]);
  });

  it('N1 of any column makes a message if none were named', async () => {
    const table = await watchedTable(db);
    await db.query(`INSERT INTO ${table} VALUES (1, 'new')`);
    await db.query(`UPDATE ${table} SET note = note`);
    await db.query(`UPDATE ${table} SET note = 'x'`);
    expect(await happened(db, table)).toEqual(['changed 1', 'created 1']);
  });

  it("N1 of one of the payload's columns makes a message if only those were named", async () => {
    const table = await watchedTable(db, { columns: ['status'] });
    await db.query(`INSERT INTO ${table} VALUES (1, 'new')`);
    await db.query(`UPDATE ${table} SET note = 'x'`);
    await db.query(`UPDATE ${table} SET status = 'done'`);
    expect(await happened(db, table)).toEqual(['changed 1', 'created 1']);
  });

  it('N3 carries the old values of the chosen columns that changed, on request', async () => {
    const table = await watchedTable(db, { columns: ['status', 'note', 'id'], old_values: true });
    await db.query(`INSERT INTO ${table} VALUES (1, 'new', NULL), (2, 'new', 'x')`);
    await db.query(`UPDATE ${table} SET status = 'done', note = 'x'`);
    await db.query(`UPDATE ${table} SET id = 3 WHERE id = 1`);
    const found = (await events(db, table)).slice(2);
    const of = (event: string, id: string) =>
      only(found.filter(({ payload }) => payload.event === event && payload.recordId === id))
        .payload;
    expect(of('changed', '1')).toMatchObject({
      record: { id: 1, status: 'done', note: 'x' },
      old: { status: 'new', note: null },
    });
    expect(of('changed', '2').old).toEqual({ status: 'new' });
    expect(of('created', '3')).not.toHaveProperty('old');
    expect(of('deleted', '1')).not.toHaveProperty('old');
  });

  it('N1 of the primary key deletes the old record and creates the new one', async () => {
    const table = await watchedTable(db, { columns: ['status'] });
    await db.query(`INSERT INTO ${table} VALUES (1, 'a'), (2, 'b')`);
    await db.query(`UPDATE ${table} SET id = 5, status = 'c' WHERE id = 1`);
    expect(await happened(db, table)).toEqual(['created 1', 'created 2', 'created 5', 'deleted 1']);
    const created = (await events(db, table)).find(({ payload }) => payload.recordId === '5');
    expect(created?.payload.record).toEqual({ status: 'c' });
  });

  it('N1 of the primary key makes only the configured events', async () => {
    const created = await watchedTable(db, { changed: null, deleted: null });
    const deleted = await watchedTable(db, { changed: null, created: null });
    for (const table of [created, deleted]) {
      await db.query(`INSERT INTO ${table} VALUES (1, 'a')`);
      await db.query(`UPDATE ${table} SET status = 'b'`);
      await db.query(`UPDATE ${table} SET id = 2`);
      await db.query(`DELETE FROM ${table}`);
    }
    expect(await happened(db, created)).toEqual(['created 1', 'created 2']);
    expect(await happened(db, deleted)).toEqual(['deleted 1', 'deleted 2']);
  });
});
