// Runs the SQL of the documents, from top to bottom of each page, as a reader with psql would.

import path from 'node:path';

import pg from 'pg';
import { describe, expect, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';

type Block = { file: string; line: number; language: string; text: string };
type Client = { query: (sql: string) => Promise<{ rows: Record<string, unknown>[] }> };
type Result = { sql: string; rows: Record<string, unknown>[] };

const { blocks, runLikePsql } = (await import(path.resolve('scripts/docs-blocks.mjs'))) as {
  blocks: (language: string) => Block[];
  runLikePsql: (
    client: Client,
    script: string,
    variables: Map<string, string>,
  ) => Promise<Result[]>;
};

/** The documents use the schema `outbox`, whatever the schema of this project is. */
const db = testDatabase({
  async eachTestFrom(url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(
      'DROP SCHEMA IF EXISTS outbox, public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC',
    );
    await migrateUp({ url, schema: 'outbox' });
    await client.query(`
      SELECT outbox.define_destination(name) FROM unnest(ARRAY['crm', 'billing', 'welcome']) name;
      INSERT INTO outbox.routes (destination_id, topic)
      SELECT id, 'user.*' FROM outbox.destinations WHERE name = 'welcome'`);
    // Supabase's roles. They belong to the server, so other projects may create them at the same time.
    for (const role of ['anon', 'authenticated', 'service_role'])
      await client.query(`DO $$ BEGIN CREATE ROLE ${role};
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`);
    await client.end();
  },
});
const pages = groupByFile(blocks('sql'));

describe('the SQL of', () => {
  test.each([...pages.keys()])('%s runs from top to bottom', async (file) => {
    const results = await run(file);
    expect(results.length).toBeGreaterThan(0);
  });
});

test('M9 P11 the page for workers claims, delivers, fails and makes dead letters as it says', async () => {
  const results = await run('docs/guides/workers-in-other-languages.md');
  const values = (column: string) =>
    results.flatMap(({ rows }) => rows).flatMap((row) => (column in row ? [row[column]] : []));
  expect(values('ack')).toEqual([true, true, true]);
  expect(values('mark_delivered')).toEqual([1]);
  expect(values('nack')).toEqual([true, true]);
  const { rows } = await db.query<{ error_code: string; reason: string }>(
    'SELECT error_code, reason FROM outbox.dead_letters',
  );
  expect(rows).toEqual([{ error_code: 'address_unknown', reason: 'rejected' }]);
});

test('M11 the page about the inbox books once and reports the gap that it shows', async () => {
  const rows = (await run('docs/guides/inbox.md')).flatMap((result) => result.rows);
  const values = (column: string) => rows.flatMap((row) => (column in row ? [row[column]] : []));
  expect(values('is_new')).toEqual([true, false, false, true, true, true, false]);
  expect(values('balance')).toEqual([10]);
  expect(values('gap')).toEqual([null, 'missing', 'missing']);
});

test('M3 the page for beginners shows a duplicate where it says so', async () => {
  const results = await run('docs/start/getting-started.md');
  const enqueued = results.filter(({ sql }) => sql.includes('registration-1'));
  expect(enqueued.map(({ rows }) => rows[0]?.['duplicate'])).toEqual([false, true]);
  expect(enqueued[0]?.rows[0]?.['id']).toBe(enqueued[1]?.rows[0]?.['id']);
});

test('W6 the page about rollouts shares registrations between two systems, and moves old rows once', async () => {
  const results = await run('docs/guides/rollouts.md');
  const verdicts = results.flatMap(({ rows }) => rows).filter((row) => 'verdict' in row);
  expect(verdicts).toContainEqual({ verdict: 'waiting', count: '1' });
  const { rows } = await db.query<{
    by_old: number;
    by_new: number;
    moved: number;
    messages: number;
  }>(`
    SELECT (SELECT count(*)::int FROM archive.webhook_logs) AS by_old,
           (SELECT count(*)::int FROM outbox.deliveries d JOIN outbox.messages m ON m.id = d.message_id
              JOIN outbox.destinations t ON t.id = d.destination_id
             WHERE m.key ~ '^[12]..$' AND t.name = 'automation') AS by_new,
           (SELECT count(*)::int FROM webhook_outbox WHERE status = 'moved' AND id % 4 <> 0) AS moved,
           (SELECT count(*)::int FROM outbox.messages WHERE dedupe_key LIKE 'webhook_outbox/%') AS messages`);
  const { by_old, by_new, ...moved } = only(rows);
  expect(by_new).toBeGreaterThan(0);
  expect(by_old + by_new).toBe(100);
  expect(moved).toEqual({ moved: 500, messages: 500 });
});

test('W6 the SQL that moves old rows works when interrupted, run twice at once, with unusual rows and below 100 %', async () => {
  await run('docs/guides/rollouts.md');
  const move = /^WITH batch AS[^]*?;$/m.exec(
    (pages.get('docs/guides/rollouts.md') ?? []).at(-1)?.text ?? '',
  )?.[0];
  if (move === undefined) throw new Error('the page moves rows');
  const moved = async () => {
    const { rows } = await db.query<{ payload: unknown; waits: boolean }>(
      `SELECT m.payload, d.available_at > now() + interval '1 hour' AS waits FROM outbox.messages m
         JOIN outbox.deliveries d ON d.message_id = m.id
         JOIN outbox.destinations t ON t.id = d.destination_id AND t.name = 'automation'
        WHERE m.dedupe_key LIKE 'webhook_outbox/%' ORDER BY split_part(m.dedupe_key, '/', 2)::int`,
    );
    return rows;
  };
  await db.query(`UPDATE webhook_outbox SET status = 'processing' WHERE id = 999;
    INSERT INTO webhook_outbox (id, event_type, payload, status, next_retry_at)
    VALUES (2001, 'user.registered', '{"plan": null, "tags": [null, {"x": null}]}', 'failed', now() + interval '1 day'),
           (2002, 'user.registered', 'null', 'pending', now() - interval '1 day')`);

  await db.query("SELECT outbox.set_rollout('registrations', 50)");
  expect((await db.query(move)).rowCount, 'below 100').toBe(0);
  await db.query("SELECT outbox.set_rollout('registrations', 100)");

  const killed = await db.connect();
  killed.on('error', () => undefined);
  await killed.query('BEGIN');
  expect((await killed.query(move)).rowCount).toBeGreaterThan(0);
  const { rows } = await killed.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  // a second run beside it, which skips locked rows
  expect((await db.query(move)).rowCount).toBe(0);
  await db.query('SELECT pg_terminate_backend($1, 10000)', [only(rows).pid]);
  expect(await moved(), 'of the page itself').toHaveLength(500);

  await Promise.all([db.query(move), db.query(move)]);
  while (((await db.query(move)).rowCount ?? 0) > 0);
  const all = await moved();
  expect(all, 'all but the one in processing').toHaveLength(751);
  expect(all.slice(-2)).toEqual([
    { payload: { plan: null, tags: [null, { x: null }] }, waits: true },
    { payload: null, waits: false },
  ]);
  expect((await db.query("SELECT FROM webhook_outbox WHERE status = 'processing'")).rowCount).toBe(
    1,
  );

  await db.query(`INSERT INTO webhook_outbox (id, event_type, payload)
    VALUES (3001, 'user.registered', '{}'), (3002, 'not a topic', '{}')`);
  await expect(db.query(move)).rejects.toThrow('not a topic');
  expect(await moved()).toHaveLength(751);
});

test('M1 the page about frameworks: one call of the function creates a user and a message, or neither', async () => {
  await run('docs/start/frameworks.md');
  /** As PostgREST does it. */
  const rpc = (role: string, email: string) =>
    db.inTransaction(async (client) => {
      await client.query(`SELECT set_config('role', $1, true)`, [role]);
      await client.query('SELECT register(email => $1)', [email]);
    });
  await rpc('authenticated', 'ada@example.com');
  await expect(rpc('authenticated', 'ada@example.com')).rejects.toThrow(/users_email_key/);
  await expect(rpc('anon', 'eve@example.com')).rejects.toThrow(/permission denied for function/);
  const { rows } = await db.query(`SELECT u.email, m.payload FROM users u
    JOIN outbox.messages m ON (m.payload ->> 'userId')::bigint = u.id`);
  const email = 'ada@example.com';
  expect(rows).toEqual([{ email, payload: { userId: 1, email } }]);
  expect((await db.query('SELECT FROM outbox.messages')).rows).toHaveLength(1);
});

async function run(file: string): Promise<Result[]> {
  const client = await db.connect();
  const variables = new Map<string, string>();
  const results: Result[] = [];
  for (const block of pages.get(file) ?? []) {
    try {
      results.push(...(await runLikePsql(client, block.text, variables)));
    } catch (error) {
      throw new Error(`${block.file}:${block.line} does not run: ${String(error)}`, {
        cause: error,
      });
    }
  }
  await client.end();
  return results;
}

function groupByFile(all: Block[]): Map<string, Block[]> {
  const grouped = new Map<string, Block[]>();
  for (const block of all) grouped.set(block.file, [...(grouped.get(block.file) ?? []), block]);
  return grouped;
}
