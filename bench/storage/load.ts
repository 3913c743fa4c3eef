// Loads one day of messages for the storage bench. A sample of a thousand is really enqueued and delivered; it gives
// the true shape of the rows. Yesterday's partitions are then filled with copies of it whose times are spread evenly,
// because the size of an index depends on how many messages fall into a span of time.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';

import { delivered } from '../../src/core/outcome.js';
import { claimBatch, settle } from '../../src/database/claims.js';
import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { migrateUp } from '../../src/database/migrate.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { ask } from '../harness/server.js';
import type { BenchDatabase } from '../harness/server.js';

export const variants = [
  'plain',
  'tenant and aggregate',
  'key',
  'dedupe key',
  'watched row',
] as const;
export type Variant = (typeof variants)[number];

export type Rate = { readonly name: string; readonly perDay: number };

/** The bytes of each table and index, for one message. */
export type Parts = Record<string, number>;

const payloadBytes = 200;
const sampled = 1000;
const topics = ['created', 'updated', 'assigned', 'completed', 'deleted'];
const tenants = 200;
/** An aggregate has this many messages, one after the other. */
const perAggregate = 4;
const dayMs = 86_400_000;

/** The schema, a destination for everything, and the sample, delivered. Returns the bytes of the empty schema. */
export async function prepare(database: BenchDatabase, variant: Variant): Promise<number> {
  const { client, url } = database;
  await migrateUp({ url });
  await client.query(`SELECT outbox.make_partitions(60, current_date - 2)`);
  const empty = await ask<number>(
    client,
    `SELECT sum(pg_total_relation_size(oid))::float8 AS answer FROM pg_class
      WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r'`,
  );
  await client.query(`SELECT outbox.define_destination('sink');
    INSERT INTO outbox.routes (destination_id, topic) SELECT id, '*' FROM outbox.destinations`);
  if (variant === 'watched row') await changeRows(client);
  else
    await createOutbox().enqueueMany(
      client,
      Array.from({ length: sampled }, (_, n) => messageOf(variant, n)),
      { autonomous: true },
    );
  await deliverAll(database);
  return empty;
}

function uuidOf(text: string): string {
  const hex = Buffer.from(text).toString('hex').padStart(32, '5');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

function messageOf(variant: Variant, n: number) {
  const id = uuidOf(`job ${n}`);
  const payload = { id, n: n * 1000, status: 'waiting for review', note: '' };
  payload.note = 'x'.repeat(payloadBytes - JSON.stringify(payload).length);
  return {
    topic: `job.${topics[n % topics.length] ?? ''}`,
    payload,
    ...(variant === 'tenant and aggregate' && {
      tenantId: uuidOf(`tenant ${(n * 7919) % tenants}`),
      aggregateType: 'job',
      aggregateId: uuidOf(`job ${Math.floor(n / perAggregate)}`),
    }),
    ...(variant === 'key' && { key: `customer-${n}` }),
    ...(variant === 'dedupe key' && { dedupeKey: `job-${n}-completed` }),
  };
}

/** The table and the watch of the bench `changes`. */
async function changeRows(client: pg.Client): Promise<void> {
  await client.query(`
    CREATE TABLE cataloguing_jobs (job_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      organization_id uuid NOT NULL DEFAULT gen_random_uuid(), n int);
    INSERT INTO cataloguing_jobs (n) SELECT n FROM generate_series(1, ${sampled}) n;
    SELECT outbox.watch('cataloguing_jobs', topic => 'job', tenant => 'organization_id', columns => '{job_id,n}',
      when_changed => '{n}')`);
  await client.query('UPDATE cataloguing_jobs SET n = n + 1000000');
}

async function deliverAll({ client, url }: BenchDatabase): Promise<void> {
  const relay = new Database(resolveDatabaseOptions({ url }), {
    connections: 1,
    applicationName: 'waybill bench',
  });
  const relayId = randomUUID();
  const destinationId = await ask<number>(client, 'SELECT id AS answer FROM outbox.destinations');
  try {
    for (;;) {
      const leaseId = randomUUID();
      const messages = await claimBatch(relay, {
        destinationId,
        leaseId,
        relayId,
        limit: sampled,
        maxBytes: 8 * 1024 * 1024,
        leaseMs: 30_000,
        tenantIds: null,
        namespace: null,
        scanStart: null,
        lanesFirst: true,
        afterTenant: null,
        afterLaneTenant: null,
      });
      if (messages.length === 0) break;
      const endings = messages.map((message) => ({ message, outcome: delivered(), latencyMs: 12 }));
      await settle(relay, relayId, { leaseId, destinationId, endings });
    }
  } finally {
    await relay.close();
  }
  const count = await ask<number>(client, 'SELECT count(*)::int AS answer FROM outbox.attempts');
  if (count !== sampled) throw new Error(`${count} of ${sampled} messages were delivered`);
}

/** Fills yesterday with `count` messages at this rate, and returns the bytes of each part. */
export async function fill(client: pg.Client, rate: Rate, count: number): Promise<Parts> {
  const everyMs = dayMs / rate.perDay;
  await client.query(
    `CREATE TEMP TABLE copies AS
     SELECT n, s.id AS sample_id, y.day + n * $2::float8 * interval '1 ms' AS at,
            overlay(outbox.id_at(y.day + n * $2::float8 * interval '1 ms')::text PLACING '7' || right(gen_random_uuid()::text, 21) FROM 15)::uuid AS id
       FROM generate_series(0, $1::int - 1) n
       JOIN (SELECT m.id, row_number() OVER (ORDER BY m.id) - 1 AS place FROM outbox.messages m) s ON s.place = n % ${sampled}
      CROSS JOIN (SELECT date_trunc('day', now(), 'UTC') - interval '1 day') y(day)`,
    [count, everyMs],
  );
  // one message per transaction; each round of the sample has other aggregates, except for watched rows
  await client.query(
    `INSERT INTO outbox.messages
     SELECT (jsonb_populate_record(m, jsonb_build_object('id', c.id, 'created_at', c.at,
               'transaction_id', m.transaction_id::text::bigint + c.n,
               'aggregate_id', CASE WHEN m.aggregate_type = 'job' THEN md5(m.aggregate_id || c.n / ${sampled})::uuid::text ELSE m.aggregate_id END))).*
       FROM copies c JOIN outbox.messages m ON m.id = c.sample_id ORDER BY c.n`,
  );
  await client.query(
    `INSERT INTO outbox.attempts
     SELECT (jsonb_populate_record(a, jsonb_build_object('message_id', c.id, 'claimed_at', c.at + interval '5 ms',
               'ended_at', c.at + interval '17 ms'))).*
       FROM copies c JOIN outbox.attempts a ON a.message_id = c.sample_id ORDER BY c.n`,
  );
  await client.query(
    `INSERT INTO outbox.dedupe_keys
     SELECT (jsonb_populate_record(k, jsonb_build_object('message_id', c.id, 'dedupe_key', k.dedupe_key || c.n))).*
       FROM copies c JOIN outbox.dedupe_keys k ON k.message_id = c.sample_id ORDER BY c.n`,
  );
  await client.query('VACUUM ANALYZE outbox.messages, outbox.attempts, outbox.dedupe_keys');
  return measure(client, count);
}

async function measure(client: pg.Client, count: number): Promise<Parts> {
  const { rows } = await client.query<{ part: string; bytes: number }>(
    `WITH measured AS (
       SELECT c.oid, regexp_replace(c.relname, '_\\d{8}$', '') AS name FROM pg_class c
        WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r'
          AND (c.relname = 'dedupe_keys' AND EXISTS (SELECT FROM outbox.dedupe_keys)
               OR c.relname ~ ('^(messages|attempts)_' || to_char(now() AT TIME ZONE 'UTC' - interval '1 day', 'YYYYMMDD')))),
     parts AS (
       SELECT m.name, m.name || ': rows' AS part, pg_table_size(m.oid) AS bytes, 0 AS place FROM measured m
       UNION ALL
       SELECT m.name, m.name || ': index (' || (SELECT string_agg(CASE i.indkey[k - 1] WHEN 0 THEN 'slot' ELSE pg_get_indexdef(i.indexrelid, k, true) END, ', ' ORDER BY k)
                FROM generate_series(1, i.indnkeyatts) k) || ')',
              pg_relation_size(i.indexrelid), 1 FROM measured m JOIN pg_index i ON i.indrelid = m.oid)
     SELECT p.part, p.bytes::float8 / CASE p.name WHEN 'dedupe_keys' THEN $1 + ${sampled} ELSE $1 END AS bytes
       FROM parts p ORDER BY p.name DESC, p.place, p.bytes DESC`,
    [count],
  );
  return Object.fromEntries(rows.map(({ part, bytes }) => [part, bytes]));
}
