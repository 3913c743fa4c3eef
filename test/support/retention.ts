// Set-up for retention tests: creates messages of past days and runs the housekeeping.

import { expect } from 'vitest';

import { prune, resolveRetention } from '../../src/relay/upkeep/retention.js';
import type { Pruned, Retention } from '../../src/relay/upkeep/retention.js';
import type { Login } from './logins.js';
import { only } from './only.js';
import type { TestDatabase } from './postgres.js';
import { openDatabase } from './relay.js';

export async function pruneNow(
  db: TestDatabase,
  retention: Retention,
  login?: Login,
): Promise<Record<string, Pruned>> {
  const told: Pruned[] = [];
  const report = await prune(
    openDatabase(db, login),
    resolveRetention({ pauseMs: 0, ...retention }),
    (pruned) => void told.push(pruned),
  );
  expect(told, 'progress is reported while it runs').toEqual(report);
  return Object.fromEntries(report.map((pruned) => [pruned.what, pruned]));
}

/** Creates a message of this many days ago, with the partitions of its day. */
export async function oldMessage(
  db: TestDatabase,
  daysAgo: number,
  topic = 'old',
  namespace = 'default',
): Promise<string> {
  await db.query(
    `SELECT ${db.quoted}.make_partitions(-$1::int, (now() AT TIME ZONE 'UTC')::date - $1::int)`,
    [daysAgo],
  );
  const { rows } = await db.query<{ id: string }>(
    `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
     SELECT 2, ${db.quoted}.id_at(now() - $1::int * interval '1 day'), now() - $1::int * interval '1 day',
            pg_current_xact_id(), $3, $2, 'null' RETURNING id`,
    [daysAgo, topic, namespace],
  );
  return only(rows).id;
}

/** Moves a message that has ended, with its dedupe key and attempts, to a day long ago; returns its new id. */
export async function ageMessage(db: TestDatabase, id: string, daysAgo: number): Promise<string> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT overlay(${db.quoted}.id_at(now() - $2::int * interval '1 day')::text PLACING substr($1::text, 15) FROM 15)::uuid AS id,
            ${db.quoted}.make_partitions(-$2::int, (now() AT TIME ZONE 'UTC')::date - $2::int)`,
    [id, daysAgo],
  );
  const aged = only(rows).id;
  await db.query(`UPDATE ${db.quoted}.messages SET id = $2 WHERE id = $1`, [id, aged]);
  await db.query(`UPDATE ${db.quoted}.dedupe_keys SET message_id = $2 WHERE message_id = $1`, [
    id,
    aged,
  ]);
  await db.query(
    `INSERT INTO ${db.quoted}.attempts SELECT $2, a.claimed_at, a.ended_at, a.relay_id, a.claim_no, a.tries, a.latency_ms, a.state,
            a.destination_id FROM ${db.quoted}.attempts a WHERE a.message_id = $1`,
    [id, aged],
  );
  return aged;
}

/** The past days that still have a partition. */
export async function partitionDays(
  db: TestDatabase,
  table: 'messages' | 'attempts',
): Promise<number[]> {
  const { rows } = await db.query<{ ago: number }>(
    `SELECT (now() AT TIME ZONE 'UTC')::date - day AS ago FROM ${db.quoted}.partition_bounds($1::regclass)
      WHERE day < (now() AT TIME ZONE 'UTC')::date ORDER BY 1`,
    [`${db.quoted}.${table}`],
  );
  return rows.map((row) => row.ago);
}

/** Creates a day of messages that were delivered then, one a second; returns their ids. */
export async function deliveredDay(
  db: TestDatabase,
  daysAgo: number,
  count: number,
  destinationId: number,
  topic = 'old',
): Promise<string[]> {
  await db.query(
    `SELECT ${db.quoted}.make_partitions(-$1::int, (now() AT TIME ZONE 'UTC')::date - $1::int)`,
    [daysAgo],
  );
  const { rows } = await db.query<{ id: string }>(
    `WITH made AS (
       INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
       SELECT 200, ${db.quoted}.id_at(t.at), t.at, pg_current_xact_id(), 'default', $4, to_jsonb(repeat(md5(n::text), 6))
         FROM generate_series(1, $2::int) n
        CROSS JOIN LATERAL (
               SELECT ((now() AT TIME ZONE 'UTC')::date - $1::int)::timestamp AT TIME ZONE 'UTC' + n * interval '1 s' AS at) t
       RETURNING id, created_at),
     ended AS (
       INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, claimed_at, ended_at)
       SELECT id, $3, 1, 1, 'dispatched', created_at, created_at + interval '10 ms' FROM made)
     SELECT id FROM made ORDER BY id`,
    [daysAgo, count, destinationId, topic],
  );
  return rows.map((row) => row.id);
}

/** Moves a pending message, with its delivery, to the morning of a day long ago; returns its new id. */
export async function agePending(db: TestDatabase, id: string, daysAgo: number): Promise<string> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT overlay(${db.quoted}.id_at(((now() AT TIME ZONE 'UTC')::date - $2::int)::timestamp AT TIME ZONE 'UTC'
                    + interval '10.5 s')::text PLACING substr($1::text, 15) FROM 15)::uuid AS id,
            ${db.quoted}.make_partitions(-$2::int, (now() AT TIME ZONE 'UTC')::date - $2::int)`,
    [id, daysAgo],
  );
  const aged = only(rows).id;
  for (const [table, column] of [
    ['messages', 'id'],
    ['deliveries', 'message_id'],
    ['unrouted_messages', 'message_id'],
  ])
    await db.query(`UPDATE ${db.quoted}.${table} SET ${column} = $2 WHERE ${column} = $1`, [
      id,
      aged,
    ]);
  return aged;
}
