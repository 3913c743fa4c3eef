// The CRM of examples/crm: its own calls, as users would type them into psql, and its unchanged program.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import type pg from 'pg';
import { beforeAll, expect, onTestFinished, test, vi } from 'vitest';

import type { Config } from '../../src/config.js';
import { migrateUp } from '../../src/database/migrate.js';
import { cli, runNode } from '../support/cli.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';

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
  const { rows } = await on.query<{ id: string; payload: { n: number }; attempts: number }>(
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

test("C11 C1 a claim returns one tenant's messages in order, oldest first", async () => {
  await insert('ordered', 5);
  await insert('other', 2);
  const rows = await claim(3, randomUUID(), 'ordered');
  expect(rows.map(({ payload }) => payload.n)).toEqual([1, 2, 3]);
  expect(rows.every(({ attempts }) => attempts === 1)).toBe(true);
});

test('C11 C1 two claims at once do not overlap, and neither waits', async () => {
  await insert('two', 10);
  const [first, second] = [await db.connect(), await db.connect()];
  await first.query('BEGIN');
  await second.query('BEGIN');
  const one = await claim(5, randomUUID(), 'two', first);
  const other = await claim(10, randomUUID(), 'two', second);
  await first.query('COMMIT');
  await second.query('COMMIT');
  expect([one.length, other.length]).toEqual([5, 5]);
  expect(new Set([...one, ...other].map(({ id }) => id)).size).toBe(10);
});

test('C11 C2 C3 finalising needs the right token, and counts what it really settled', async () => {
  await insert('token', 3);
  const token = randomUUID();
  const ids = (await claim(3, token, 'token')).map(({ id }) => id);
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
  await add('acme', 'external_id', 'A-1');
  await add('acme', 'external_id', 'a-1');
  await add('globex', 'external_id', 'A-1');
  await expect(add('acme', 'external_id', 'A-1')).rejects.toMatchObject({ code: '23505' });
  await add('acme', 'email', 'Ada@Example.com');
  await add('globex', 'email', 'ada@example.com');
  await expect(add('acme', 'email', 'ada@EXAMPLE.com')).rejects.toMatchObject({ code: '23505' });
});

test('C7 C11 without the worker, a drain by cron delivers the rows of the table to a function or to Kafka', async () => {
  const config = path.join(folder, 'waybill.config.mjs');
  await insert('drained', 3);
  const { code, stdout, stderr } = await cli(
    ['drain', '--config', config, '--tenant', 'drained', '--json'],
    { environment: { DATABASE_URL: db.url } },
  );
  expect(`${code} ${stderr}`).toMatch(/^0 /);
  expect(stdout.match(/published [0-9a-f-]+: contact.created of drained/g)).toHaveLength(3);
  const { rows } = await db.query<{ delivered: number }>(
    "SELECT count(delivered_at)::int AS delivered FROM public.outbox WHERE tenant_id = 'drained'",
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
