// Large outbox for the bench of the page: messages with attempts, a tenth of them dead and a tenth waiting for their
// keys, and many idle endpoints. Rows are inserted directly into the tables, because a relay would need a day. All values
// are derived from a message's number, so runs are repeatable.

import type pg from 'pg';

import { migrateUp } from '../../src/database/migrate.js';
import { progress, shown } from '../harness/report.js';
import { ask, connect } from '../harness/server.js';

export type Size = { messages: number; days: number; destinations: number };

const chunk = 100_000;
const writers = 2;

const topics = [
  'user',
  'order',
  'invoice',
  'payment',
  'cart',
  'shipment',
  'product',
  'subscription',
].flatMap((noun) =>
  ['created', 'updated', 'cancelled', 'failed', 'completed'].map((verb) => `${noun}.${verb}`),
);
const destinations = [
  'crm',
  'billing',
  'search',
  'mail',
  'partner',
  'analytics',
  'ledger',
  'warehouse',
];
const codes = [
  'http_503',
  'timeout',
  'http_500',
  'connection_refused',
  'http_404',
  'http_422',
  'http_429',
  'guard_refused',
].concat(Array.from({ length: 22 }, (_, index) => `partner_${100 + index}`));

/** Values for the calls, from common to rare. */
export const common = { topics, destinations, codes, tenants: 2000 } as const;

export function keysOf({ messages }: Size): number {
  return Math.max(10, Math.floor(messages / 50));
}

/** The number of leased messages, which are the newest. */
function heldOf(messages: number): number {
  return Math.min(2000, Math.ceil(messages / 1000));
}

export async function load(url: string, size: Size): Promise<void> {
  await migrateUp({ url });
  const client = await connect(url);
  try {
    await client.query(
      `SELECT outbox.make_partitions(60, (now() - interval '${size.days + 1} days')::date)`,
    );
    await client.query('SELECT outbox.apply_definitions($1)', [JSON.stringify(definitions())]);
    await client.query(
      `INSERT INTO outbox.keys (id, next_sequence, namespace, tenant_id, key) OVERRIDING SYSTEM VALUE
       SELECT k, 1000000000, 'default', 'tenant-' || k % ${common.tenants}, 'customer-' || k FROM generate_series(1, $1::int) k`,
      [keysOf(size)],
    );
    await writeMessages(url, size);
    progress('lanes, leases, statistics and the audit …');
    for (const sql of restOf(size)) await client.query(sql);
    progress('reports …');
    await fillReports(client);
    progress('VACUUM ANALYZE …');
    await client.query('VACUUM ANALYZE');
    await client.query('CHECKPOINT');
  } finally {
    await client.end();
  }
}

/** As a relay counts them. */
async function fillReports(client: pg.Client): Promise<void> {
  let more = true;
  while (more) more = await ask<boolean>(client, 'SELECT outbox.fill_reports() AS answer');
}

function definitions(): object {
  return {
    destinations: [...destinations, 'bench.shadow'].map((name, index) => ({
      name,
      kind: index < destinations.length ? 'webhook' : 'shadow',
      maxAttempts: 10,
      retryBaseMs: 1000,
      retryMaxMs: 300_000,
      whenDead: index % 2 === 0 ? 'continue' : 'block',
    })),
    routes: destinations.map((name, index) => ({
      topic: 'nothing',
      to: name,
      ...(index === 0 && { rollout: 'bench' }),
    })),
  };
}

async function writeMessages(url: string, size: Size): Promise<void> {
  const firsts = Array.from(
    { length: Math.ceil(size.messages / chunk) },
    (_, index) => index * chunk,
  );
  const startedMs = performance.now();
  let done = 0;
  const write = async (): Promise<void> => {
    const client = await connect(url);
    try {
      // durability does not matter here
      await client.query('SET synchronous_commit = off; SET jit = off');
      for (let first = firsts.shift(); first !== undefined; first = firsts.shift()) {
        await client.query(chunkOf(size, first, Math.min(first + chunk, size.messages)));
        done += 1;
        if (done % 10 === 0)
          progress(
            `${shown(done * chunk)} messages, ${shown((performance.now() - startedMs) / 1000)} s`,
          );
      }
    } finally {
      await client.end();
    }
  };
  await Promise.all(Array.from({ length: writers }, write));
}

/** A number between 0 and 1, derived from a message's number. */
function chance(seed: number): string {
  return `((hashint8extended(n, ${seed}) & 1073741823) / 1073741824.0::float8)`;
}

function pick(list: readonly string[], seed: number, skew: number): string {
  return `(ARRAY['${list.join("','")}'])[1 + floor(${list.length} * ${chance(seed)} ^ ${skew})::int]`;
}

/** SQL for messages `first` to `last` with their status: of the newest hundredth, most are pending. */
function chunkOf(size: Size, first: number, last: number): string {
  const { messages, days } = size;
  // of these, the three in ten that have a key wait
  const keysFrom = Math.floor(messages * 0.66);
  const fresh = Math.floor(messages * 0.99);
  const held = messages - heldOf(messages);
  return `
    WITH numbered AS (
      SELECT n, now() - ${days} * interval '1 day' * (1 - n / ${messages}.0::float8) - interval '1 second' AS at,
             md5(n::text) AS digest, ${chance(2)} AS fate, ${chance(3)} < 0.3 AS keyed,
             1 + floor(${keysOf(size)} * ${chance(4)} ^ 2)::bigint AS key_id,
             CASE WHEN n % 5 = 0 THEN 'request-' || n END AS dedupe_key,
             ${pick(topics, 5, 3)} AS topic, floor(${common.tenants} * ${chance(6)} ^ 4)::int AS tenant,
             1 + (hashint8extended(n, 7) & 7) AS other, ${pick(codes, 8, 3)} AS code
        FROM generate_series(${first}::bigint, ${last - 1}::bigint) n),
    made AS MATERIALIZED (
      SELECT *, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(digest, 1, 3) || '8' || substr(digest, 4, 15))::uuid AS id,
             (1 + (hashtext(topic) & 7))::int AS destination_id,
             CASE WHEN n >= ${held} THEN 'held' WHEN n >= ${fresh} AND fate < 0.8 OR keyed AND n >= ${keysFrom} THEN 'waits'
                  WHEN fate < 0.1 THEN 'dead' WHEN fate < 0.105 THEN 'discarded' WHEN fate < 0.11 THEN 'unrouted' ELSE 'delivered' END AS place,
             fate > 0.95 OR fate < 0.4 AND n >= ${fresh} AS failed_before,
             CASE WHEN NOT keyed AND fate > 0.9 THEN 'billing' ELSE 'default' END AS namespace,
             CASE WHEN keyed THEN 'tenant-' || key_id % ${common.tenants} WHEN fate < 0.9 THEN 'tenant-' || tenant END AS tenant_id
        FROM numbered),
    messages AS (
      INSERT INTO outbox.messages (bytes, id, created_at, transaction_id, key_id, sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type, aggregate_id, headers, payload)
      SELECT 250, id, at, pg_current_xact_id(), CASE WHEN keyed THEN key_id END, CASE WHEN keyed THEN n END,
             namespace, topic, tenant_id,
             CASE WHEN keyed THEN 'customer-' || key_id END, dedupe_key, CASE WHEN other < 5 THEN split_part(topic, '.', 1) END,
             CASE WHEN other < 5 THEN (hashint8extended(n, 9) & 1048575)::text END,
             CASE WHEN other < 5 THEN jsonb_build_object('traceparent', '00-' || digest || '-' || left(digest, 16) || '-01') END,
             jsonb_build_object('n', n, 'total', n % 100000, 'text', repeat(digest, 6))
        FROM made),
    failures AS (
      INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at, latency_ms, error_code, remote_code, error_message)
      SELECT id, destination_id, 1, 1, 'retryable', '00000000-0000-0000-0000-00000000000a', at, at + interval '40 ms', 40, code, '503', 'the other side does not answer as it should'
        FROM made WHERE place IN ('dead', 'waits', 'delivered') AND (failed_before OR place = 'dead')),
    endings AS (
      INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at, latency_ms, error_code, error_message, reference)
      SELECT id, destination_id, 2, 2, (CASE place WHEN 'dead' THEN 'failed' WHEN 'discarded' THEN 'discarded' ELSE 'dispatched' END)::outbox.attempt_state,
             '00000000-0000-0000-0000-00000000000a', at, at + fate * interval '2 s', 20, CASE place WHEN 'dead' THEN code WHEN 'discarded' THEN 'cancelled' END,
             CASE place WHEN 'dead' THEN 'refused for good' END, CASE place WHEN 'delivered' THEN left(digest, 12) END
        FROM made WHERE place IN ('dead', 'discarded', 'delivered')),
    second AS (
      INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at, latency_ms)
      SELECT id, 1 + destination_id % 8, 1, 1, 'dispatched', '00000000-0000-0000-0000-00000000000a', at, at + fate * interval '1 s', 10
        FROM made WHERE place = 'delivered' AND other = 1),
    dead AS (
      INSERT INTO outbox.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, remote_code, error_message, created_at,
             key_id, sequence, bytes, namespace, topic, tenant_id, key, dedupe_key, aggregate_type, aggregate_id, payload)
      SELECT id, destination_id, at + fate * interval '2 s', 2, 2, 'rejected', code, '422', 'refused for good', at, CASE WHEN keyed THEN key_id END,
             CASE WHEN keyed THEN n END, 300, namespace, topic, tenant_id, CASE WHEN keyed THEN 'customer-' || key_id END, dedupe_key, CASE WHEN other < 5 THEN split_part(topic, '.', 1) END,
             CASE WHEN other < 5 THEN (hashint8extended(n, 9) & 1048575)::text END, jsonb_build_object('n', n, 'total', n % 100000, 'text', repeat(digest, 6))
        FROM made WHERE place = 'dead'),
    dedupe_keys AS (
      INSERT INTO outbox.dedupe_keys (message_id, sequence, namespace, topic, dedupe_key, tenant_id)
      SELECT id, CASE WHEN keyed THEN n END, namespace, topic, dedupe_key, coalesce(tenant_id, '') FROM made WHERE dedupe_key IS NOT NULL),
    unrouted AS (INSERT INTO outbox.unrouted_messages SELECT id FROM made WHERE place = 'unrouted')
    INSERT INTO outbox.deliveries (message_id, destination_id, available_at, key_id, sequence, claim_no, tries, delay_ms, bytes, namespace, tenant_id)
    SELECT id, destination_id, now() + CASE WHEN failed_before THEN fate * interval '1 hour' ELSE interval '0' END, CASE WHEN keyed THEN key_id END,
           CASE WHEN keyed THEN n END, CASE WHEN failed_before THEN 1 ELSE 0 END, CASE WHEN failed_before THEN 1 ELSE 0 END,
           CASE WHEN failed_before THEN 3600000 END, 300, namespace, tenant_id
      FROM made WHERE place = 'waits'`;
}

function restOf({ messages, days, destinations: idle }: Size): string[] {
  const held = heldOf(messages);
  const slices = `generate_series(date_bin('10 seconds', now() - least(${days}, 31) * interval '1 day', 'epoch'), now() - interval '10 seconds', '10 seconds') s(slice)`;
  return [
    // the first dead letter of a key blocks it, at every other destination
    `INSERT INTO outbox.lanes (destination_id, key_id, blocked_by, namespace, tenant_id)
     SELECT DISTINCT ON (d.destination_id, d.key_id) d.destination_id, d.key_id, d.message_id, 'default', d.tenant_id
       FROM outbox.dead_letters d JOIN outbox.destinations t ON t.id = d.destination_id AND t.when_dead = 'block'
      WHERE d.key_id IS NOT NULL AND d.key_id % 10 = 0 ORDER BY d.destination_id, d.key_id, d.sequence`,
    `INSERT INTO outbox.lanes (destination_id, key_id, available_at, namespace, tenant_id)
     SELECT d.destination_id, d.key_id, min(d.available_at), 'default', min(d.tenant_id) FROM outbox.deliveries d
      WHERE d.key_id IS NOT NULL GROUP BY 1, 2 ON CONFLICT DO NOTHING`,
    `INSERT INTO outbox.leases (id, relay_id, claimed_at, expires_at, duration, remaining, destination_id, quarantined, message_ids, claim_nos, tries)
     SELECT gen_random_uuid(), '00000000-0000-0000-0000-00000000000a', now(), now() + interval '1 day', interval '30 s', count(*), d, false,
            array_agg(m.id), array_agg(1), array_agg(0)
       FROM (SELECT m.id, (1 + (hashtext(m.topic) & 7))::int AS d FROM outbox.messages m ORDER BY m.id DESC LIMIT ${held}) m GROUP BY d`,
    `INSERT INTO outbox.relays (id, name, version, configuration, destinations, started_at, heartbeat_at)
     SELECT ('00000000-0000-0000-0000-00000000000' || x)::uuid, 'relay-' || x, '0.2.0', 'bench', '{${destinations.join(',')}}', now(), now() + interval '1 day'
       FROM unnest('{a,b,c}'::text[]) x`,
    `INSERT INTO outbox.statistics (slice, destination_id, delivered, retried, died)
     SELECT s.slice, d.id, 40, 3, 0 FROM ${slices}, outbox.destinations d`,
    `WITH added AS (
       INSERT INTO outbox.destinations (name, kind, origin, max_attempts, retry_base_ms, retry_max_ms)
       SELECT 'shop-' || n, 'endpoint', 'database', 10, 1000, 300000 FROM generate_series(1, ${idle}) n
       RETURNING id, name)
     INSERT INTO outbox.endpoints (destination_id, url, topics, tenant_id, secrets)
     SELECT id, 'https://' || name || '.example/hook', '{shop.*}', name, '[]' FROM added`,
    `INSERT INTO outbox.samples (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
     SELECT s.slice, 320, 4000, 120, 7, 1.5, 40, 20, 300 FROM ${slices}`,
    `INSERT INTO outbox.shadow_comparisons (rollout, reference, first_at, rendered, rendered_at, sent, sent_at)
     SELECT 'bench', 'order-' || n, x.at, jsonb_build_object('n', n, 'at', n, 'text', repeat(md5(n::text), 6)), x.at,
            CASE WHEN n % 50 > 0 THEN jsonb_build_object('n', n - (n % 97 = 0)::int, 'at', n + 1, 'text', repeat(md5(n::text), 6)) END,
            CASE WHEN n % 50 > 0 THEN x.at END
       FROM generate_series(1, ${Math.ceil(messages / 100)}) n, LATERAL (SELECT now() - n * interval '20 seconds') x(at)`,
    `INSERT INTO outbox.jobs (action, filter, dead_before, actor, planned, done, state, ended_at, retried_ids, retried_to)
     SELECT 'retry', '{}', now(), 'api:ada', count(*), count(*), 'done', now(), array_agg(d.message_id), array_agg(d.destination_id)
       FROM (SELECT l.message_id, l.destination_id FROM outbox.dead_letters l ORDER BY l.dead_at LIMIT 1000) d`,
    // relays prune in small steps and leave no empty pages behind
    'SELECT outbox.prune_statistics()',
    'VACUUM FULL outbox.statistics',
    'VACUUM FULL outbox.samples',
    `INSERT INTO outbox.operator_actions (at, actor, action, subject, count)
     SELECT now() - n * interval '1 minute', 'api:ada', CASE WHEN n % 10 = 0 THEN 'start_replay' ELSE 'retry_now' END, '{"destination": "crm"}', 3 FROM generate_series(1, ${Math.ceil(messages / 100)}) n`,
  ];
}
