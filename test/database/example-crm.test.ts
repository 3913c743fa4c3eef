// The CRM of examples/crm: its own calls, as users would type them into psql, and its unchanged program.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import type pg from 'pg';
import { beforeAll, expect, onTestFinished, test, vi } from 'vitest';

import type { Config } from '../../src/config.js';
import { migrateUp } from '../../src/database/migrate.js';
import { cli, runNode } from '../support/cli.js';
import { park } from '../support/letters.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { addHistory, rowsRead } from '../support/rows-read.js';

const db = testDatabase();
const folder = path.resolve('examples/crm');
const schema = readFileSync(path.join(folder, 'schema.sql'), 'utf8');

// the examples use the default schema, whatever the schema of this project is
beforeAll(async () => {
  await migrateUp({ url: db.url });
  await db.query(schema);
});

async function insert(tenant: string, count: number): Promise<void> {
  await db.query(
    `INSERT INTO public.outbox (tenant_id, topic, payload)
     SELECT $1, 'contact.created', jsonb_build_object('n', n) FROM generate_series(1, $2::int) n`,
    [tenant, count],
  );
}

async function claim(
  limit: number,
  token: string,
  tenant: string,
  on: Pick<pg.Client, 'query'> = db.pool,
) {
  const { rows } = await on.query<{ id: string; payload: { n: number } }>(
    'SELECT * FROM app.outbox_claim($1, $2, $3)',
    [limit, token, tenant],
  );
  return rows;
}

async function mark(token: string, ids: string[]): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    'SELECT app.outbox_mark_delivered($1, $2) AS count',
    [token, ids],
  );
  return only(rows).count;
}

test("C11 C1 C12 a claim returns one tenant's messages in order, oldest first, as whole rows", async () => {
  const [tenant, token] = [randomUUID(), randomUUID()];
  await insert(tenant, 5);
  await insert(randomUUID(), 2);
  const rows = await claim(3, token, tenant);
  expect(rows.map(({ payload }) => payload.n)).toEqual([1, 2, 3]);
  const { rows: held } = await db.query(
    'SELECT * FROM public.outbox WHERE processing_token = $1 ORDER BY created_at',
    [token],
  );
  expect(rows).toEqual(held);
  expect(rows[0]).toMatchObject({
    tenant_id: tenant,
    attempts: 1,
    processing_token: token,
    delivered_at: null,
  });
});

test('C12 C11 rows that come with their own created_at are claimed by it, whatever the order of insertion', async () => {
  // as typed into psql; no tenant
  await db.query(`
    INSERT INTO public.outbox (topic, payload, created_at) VALUES ('test.order', '{"seq": 3}', now() - interval '1 hour');
    INSERT INTO public.outbox (topic, payload, created_at) VALUES ('test.order', '{"seq": 1}', now() - interval '3 hours');
    INSERT INTO public.outbox (topic, payload, created_at) VALUES ('test.order', '{"seq": 2}', now() - interval '2 hours');
    INSERT INTO public.outbox (topic, payload, created_at) VALUES ('test.order', '{"seq": 5}', now() + interval '1 hour')`);
  const { rows } = await db.query<{ seq: number; hours: number }>(
    `SELECT (payload ->> 'seq')::int AS seq, round(extract(epoch FROM now() - created_at) / 3600)::int AS hours
       FROM app.outbox_claim(10, gen_random_uuid()) WHERE topic = 'test.order'`,
  );
  expect(rows).toEqual([
    { seq: 1, hours: 3 },
    { seq: 2, hours: 2 },
    { seq: 3, hours: 1 },
    { seq: 5, hours: 0 },
  ]);
});

test('C12 a row that comes with its own id keeps it, also in claims and marks, and is unique', async () => {
  const [id, tenant, token] = [randomUUID(), randomUUID(), randomUUID()];
  const add = () =>
    db.query(
      `INSERT INTO public.outbox (id, tenant_id, topic, payload, created_at)
       VALUES ($1, $2, 'contact.created', '{}', '2026-01-02 03:04:05Z') RETURNING *`,
      [id, tenant],
    );
  const { rows } = await add();
  expect(rows).toMatchObject([{ id, tenant_id: tenant, attempts: 0 }]);
  await expect(add()).rejects.toMatchObject({ code: '23505' });
  const claimed = await claim(10, token, tenant);
  expect(claimed).toMatchObject([{ ...rows[0], attempts: 1, processing_token: token }]);
  expect(await mark(token, [randomUUID()])).toBe(0);
  expect(await mark(token, [id])).toBe(1);
  const { rows: kept } = await db.query(
    'SELECT id, delivered_at FROM public.outbox WHERE id = $1',
    [id],
  );
  expect(kept).toEqual([{ id, delivered_at: expect.any(Date) as unknown }]);
});

test('C12 a row without a payload is refused', async () => {
  await expect(
    db.query(
      "INSERT INTO public.outbox (tenant_id, topic) VALUES (gen_random_uuid(), 'contact.created')",
    ),
  ).rejects.toMatchObject({
    code: '23502',
    message: 'payload is null: every row of public.outbox has one',
  });
});

test('C4 C12 plain lists and undelivered rows of the view read only what they show', async () => {
  const tenant = randomUUID();
  const kept = await addHistory(db.pool, 'crm', { topic: 'contact.created' });
  await insert(tenant, 40);
  const list = 'SELECT * FROM public.outbox';
  for (const query of [
    `${list} ORDER BY created_at DESC LIMIT 50`,
    `${list} WHERE tenant_id = '${tenant}' ORDER BY created_at DESC LIMIT 50`,
    `${list} WHERE id = '${randomUUID()}'`,
    `${list} WHERE processing_token = '${randomUUID()}'`,
    `${list} WHERE delivered_at IS NULL ORDER BY created_at`,
    'SELECT count(*) FROM public.outbox WHERE delivered_at IS NULL',
  ])
    expect(await rowsRead(db.pool, query), query).toBeLessThan(200);
  // the measure finds a query that reads everything, and that reads each table once
  const count = await rowsRead(db.pool, 'SELECT count(*) FROM public.outbox');
  expect(count).toBeGreaterThanOrEqual(kept);
  expect(count).toBeLessThan(kept + 1000);
});

test('C12 a row that was replayed is one row, which is claimed and delivered again, or gone', async () => {
  const [tenant, token] = [randomUUID(), randomUUID()];
  await insert(tenant, 1);
  const [row] = await claim(1, token, tenant);
  const id = row?.id ?? '';
  await mark(token, [id]);
  const replay = async () => {
    const { rows } = await db.query<{ replay_id: string }>(
      "SELECT replay_id FROM outbox.start_replay('crm', ids => ARRAY[$1::uuid])",
      [id],
    );
    await db.query('SELECT outbox.replay_step($1)', [only(rows).replay_id]);
  };
  const shown = async () =>
    (
      await db.query<{ token: string | null; delivered: boolean }>(
        `SELECT processing_token AS token, delivered_at IS NOT NULL AS delivered
           FROM public.outbox WHERE tenant_id = $1`,
        [tenant],
      )
    ).rows;
  expect(await shown()).toEqual([{ token: null, delivered: true }]);
  await replay();
  expect(await shown()).toEqual([{ token: null, delivered: false }]);
  await claim(1, token, tenant);
  expect(await shown()).toEqual([{ token, delivered: false }]);
  await mark(token, [id]);
  expect(await shown()).toEqual([{ token: null, delivered: true }]);
  await replay();
  await claim(1, token, tenant);
  await db.query(`SELECT outbox.nack($1, $2, 'refused', terminal => true, destination => 'crm')`, [
    token,
    id,
  ]);
  expect(await shown()).toEqual([{ token: null, delivered: false }]);
  await db.query("SELECT outbox.discard_dead_letters('crm', ids => ARRAY[$1::uuid])", [id]);
  expect(await shown()).toEqual([]);
  // parked behind a dead letter of its key: no attempt says so
  await replay();
  await claim(1, token, tenant);
  await mark(token, [id]);
  await replay();
  await park(db, id);
  expect(await shown()).toEqual([{ token: null, delivered: false }]);
});

test('C12 an update or a deletion is refused, and the call in the hint does it', async () => {
  const [tenant, id] = [randomUUID(), randomUUID()];
  await db.query(
    `INSERT INTO public.outbox (id, tenant_id, topic, payload) VALUES ($1, $2, 'contact.created', '{}')`,
    [id, tenant],
  );
  /** The call in the hint of the refused statement, and what it returns. */
  const hinted = async (sql: string) => {
    const error = await db.query(sql, [id]).then(
      () => undefined,
      (reason: pg.DatabaseError) => reason,
    );
    expect(error).toMatchObject({ code: '0A000' });
    const [call = ''] = /SELECT outbox\.\w+\([^)]*\)/.exec(error?.hint ?? '') ?? [];
    return (await db.query<Record<string, unknown>>(call)).rows;
  };
  const retried = await hinted('UPDATE public.outbox SET attempts = 0 WHERE id = $1');
  expect(retried).toEqual([{ retry_now: expect.anything() as unknown }]);
  await hinted('DELETE FROM public.outbox WHERE id = $1');
  const { rows } = await db.query('SELECT FROM public.outbox WHERE id = $1', [id]);
  expect(rows).toEqual([]);
});

test('C12 a row that claims to be delivered, held or tried already is refused', async () => {
  for (const given of [
    'delivered_at, attempts',
    'processing_token, attempts',
    'attempts, tenant_id',
  ])
    await expect(
      db.query(`INSERT INTO public.outbox (topic, payload, ${given})
        SELECT 'contact.created', '{}', ${given} FROM (SELECT now() AS delivered_at, gen_random_uuid() AS processing_token,
               1 AS attempts, gen_random_uuid() AS tenant_id) x`),
      given,
    ).rejects.toThrow(/a new row has .* attempts 1: leave them out/);
});

test('C12 a message of others, whose tenant is no uuid, stops no claim', async () => {
  await db.query(`SELECT outbox.enqueue('contact.created', '{"n": 1}', tenant_id => 'acme')`);
  const token = randomUUID();
  const { rows } = await db.query<{ id: string; tenant_id: null }>(
    `SELECT * FROM app.outbox_claim(100, $1)`,
    [token],
  );
  const strange = rows.filter((row) => row.tenant_id === null && row.id !== null);
  expect(strange.length).toBeGreaterThan(0);
  expect(
    await mark(
      token,
      rows.map(({ id }) => id),
    ),
  ).toBe(rows.length);
});

test('C11 C1 two claims at once do not overlap, and neither waits', async () => {
  const tenant = randomUUID();
  await insert(tenant, 10);
  const [first, second] = [await db.connect(), await db.connect()];
  await first.query('BEGIN');
  await second.query('BEGIN');
  const one = await claim(5, randomUUID(), tenant, first);
  const other = await claim(10, randomUUID(), tenant, second);
  await first.query('COMMIT');
  await second.query('COMMIT');
  expect([one.length, other.length]).toEqual([5, 5]);
  expect(new Set([...one, ...other].map(({ id }) => id)).size).toBe(10);
});

test('C11 C2 C3 finalising needs the right token, and counts what it really settled', async () => {
  const [tenant, token] = [randomUUID(), randomUUID()];
  await insert(tenant, 3);
  const ids = (await claim(3, token, tenant)).map(({ id }) => id);
  expect(await mark(randomUUID(), ids)).toBe(0);
  const held = await db.query('SELECT 1 FROM public.outbox WHERE processing_token = $1', [token]);
  expect(held.rows).toHaveLength(3);
  expect(await mark(token, [...ids, randomUUID()])).toBe(3);
  expect(await mark(token, ids)).toBe(0);
  const { rows } = await db.query<{ delivered: number }>(
    'SELECT count(delivered_at)::int AS delivered FROM public.outbox WHERE id = ANY ($1)',
    [ids],
  );
  expect(only(rows).delivered).toBe(3);
});

test('C5 C11 within a tenant an external id is unique, and so is an address in any case', async () => {
  const add = (tenant: string, type: string, value: string) =>
    db.query('INSERT INTO public.contact_identities VALUES ($1, gen_random_uuid(), $2, $3)', [
      tenant,
      type,
      value,
    ]);
  const [acme, globex] = [randomUUID(), randomUUID()];
  await add(acme, 'external_id', 'A-1');
  await add(acme, 'external_id', 'a-1');
  await add(globex, 'external_id', 'A-1');
  await expect(add(acme, 'external_id', 'A-1')).rejects.toMatchObject({ code: '23505' });
  await add(acme, 'email', 'Ada@Example.com');
  await add(globex, 'email', 'ada@example.com');
  await expect(add(acme, 'email', 'ada@EXAMPLE.com')).rejects.toMatchObject({ code: '23505' });
});

test('C7 C11 without the worker, a drain by cron delivers the rows of the table to a function or to Kafka', async () => {
  const config = path.join(folder, 'waybill.config.mjs');
  const tenant = randomUUID();
  await insert(tenant, 3);
  const { code, stdout, stderr } = await cli(
    ['drain', '--config', config, '--tenant', tenant, '--json'],
    { environment: { DATABASE_URL: db.url } },
  );
  expect(`${code} ${stderr}`).toMatch(/^0 /);
  const published = new RegExp(`published [0-9a-f-]+: contact.created of ${tenant}`, 'g');
  expect(stdout.match(published)).toHaveLength(3);
  const { rows } = await db.query<{ delivered: number }>(
    'SELECT count(delivered_at)::int AS delivered FROM public.outbox WHERE tenant_id = $1',
    [tenant],
  );
  expect(only(rows).delivered).toBe(3);

  vi.stubEnv('KAFKA_BROKERS', 'localhost:9092');
  onTestFinished(() => void vi.unstubAllEnvs());
  const { default: toKafka } = (await import(config)) as { default: Config };
  expect(toKafka.destinations['crm']?.kind).toBe('kafka');
});

test('C5 C6 the program runs: every contact has its message, workers share them, a duplicate leaves nothing', async () => {
  await db.query('TRUNCATE public.contact_identities');
  const environment = { DATABASE_URL: db.url };
  const { code, stdout, stderr } = await runNode([path.join(folder, 'main.mjs')], {
    environment,
  }).ended();
  expect(`${code} ${stderr}`).toBe('0 ');
  const [, published, different] = /published (\d+), of which (\d+) different/.exec(stdout) ?? [];
  expect(Number(published)).toBeGreaterThanOrEqual(250);
  expect(different).toBe(published);
  expect(stdout).toContain(
    'duplicate key value violates unique constraint "contact_identities_email"',
  );
  const { rows } = await db.query<{ contacts: number; messages: number }>(
    `SELECT (SELECT count(*)::int FROM public.contact_identities) AS contacts,
            (SELECT count(*)::int FROM public.outbox WHERE topic = 'contact.created' AND payload ? 'email' AND delivered_at IS NOT NULL) AS messages`,
  );
  expect(only(rows)).toEqual({ contacts: 250, messages: 250 });
});
