// Housekeeping as relays and `waybill maintain` do it: in short transactions with pauses between them, with
// a report of what went, and never touching what somebody still needs.

import { describe, expect, it } from 'vitest';

import {
  dueMaintenance,
  makePartitions,
  prune,
  resolveRetention,
} from '../../src/database/maintenance.js';
import type { Pruned, Retention } from '../../src/database/maintenance.js';
import { defineDestination, only } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase();

async function pruneNow(retention: Retention): Promise<Record<string, Pruned>> {
  const told: Pruned[] = [];
  const report = await prune(
    openDatabase(db),
    resolveRetention({ pauseMs: 0, ...retention }),
    (pruned) => void told.push(pruned),
  );
  expect(told, 'told while it runs').toEqual(report);
  return Object.fromEntries(report.map((pruned) => [pruned.what, pruned]));
}

/** A message as it was made so many days ago; its partition is made with it. */
async function oldMessage(daysAgo: number): Promise<string> {
  await db.query(
    `SELECT ${db.quoted}.make_partitions(-$1::int, (now() AT TIME ZONE 'UTC')::date - $1::int)`,
    [daysAgo],
  );
  const { rows } = await db.query<{ id: string }>(
    `INSERT INTO ${db.quoted}.messages (id, created_at, transaction_id, namespace, topic, payload)
     SELECT ${db.quoted}.id_at(now() - $1::int * interval '1 day'), now() - $1::int * interval '1 day',
            pg_current_xact_id(), 'default', 'old', 'null' RETURNING id`,
    [daysAgo],
  );
  return only(rows).id;
}

async function deliveredAttempt(messageId: string, destinationId: number): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
     VALUES ($1, $2, 1, 1, 'dispatched', now())`,
    [messageId, destinationId],
  );
}

/** Which of the days before today still have a partition. */
async function partitionDays(table: string): Promise<number[]> {
  const { rows } = await db.query<{ ago: number }>(
    `SELECT (now() AT TIME ZONE 'UTC')::date - day AS ago FROM ${db.quoted}.partition_bounds($1::regclass)
      WHERE day < (now() AT TIME ZONE 'UTC')::date ORDER BY 1`,
    [`${db.quoted}.${table}`],
  );
  return rows.map((row) => row.ago);
}

describe('partitions', () => {
  it('C9 N7 expired days are dropped and counted, and what waits, is held or is dead keeps its day', async () => {
    const destinationId = await defineDestination(db, 'kept');
    await db.query(`SELECT ${db.quoted}.make_partitions(0, (now() AT TIME ZONE 'UTC')::date - 10)`);
    const finished = await oldMessage(15);
    await deliveredAttempt(finished, destinationId);
    const waiting = await oldMessage(14);
    await db.query(
      `INSERT INTO ${db.quoted}.deliveries (message_id, available_at, bytes, destination_id, namespace)
       VALUES ($1, now() + interval '1 day', 1, $2, 'default')`,
      [waiting, destinationId],
    );
    const held = await oldMessage(13);
    await db.query(
      `INSERT INTO ${db.quoted}.leases (id, relay_id, claimed_at, expires_at, duration, remaining, destination_id,
              alone, message_ids, claim_nos, tries)
       VALUES (gen_random_uuid(), gen_random_uuid(), now(), now() + interval '1 hour', '1 hour', 1, $2, false,
               ARRAY[$1::uuid], '{1}', '{1}')`,
      [held, destinationId],
    );
    const dead = await oldMessage(12);
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason)
       VALUES ($1, $2, now(), 1, 1, 'rejected')`,
      [dead, destinationId],
    );
    const recent = await oldMessage(3);
    await deliveredAttempt(recent, destinationId);

    const report = await pruneNow({ messagesDays: 7, attemptsDays: 9 });
    expect(report['partitions']).toMatchObject({ what: 'partitions', rows: 2 });
    expect(report['partitions']?.ms).toBeGreaterThanOrEqual(0);
    // the last day that is wholly older than seven days is the eighth before today, and so on
    expect((await partitionDays('messages')).filter((ago) => ago > 7)).toEqual([12, 13, 14]);
    expect((await partitionDays('attempts')).filter((ago) => ago > 9)).toEqual([12, 13, 14]);
    expect(await partitionDays('messages')).toEqual(expect.arrayContaining([1, 2, 3, 4, 5, 6, 7]));
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.messages WHERE topic = 'old' ORDER BY id`,
    );
    expect(rows.map((row) => row.id)).toEqual([waiting, held, dead, recent]);

    const again = await pruneNow({ messagesDays: 7, attemptsDays: 9 });
    expect(again['partitions'], 'nothing is left to do').toMatchObject({ rows: 0 });
  });

  it('C9 without a limit nothing is ever removed', async () => {
    await oldMessage(500);
    const before = await partitionDays('messages');
    expect(before).toContain(500);
    const report = await pruneNow({ messagesDays: null, attemptsDays: null, dedupeKeysDays: null });
    expect(Object.keys(report)).toEqual(['partitions', 'unrouted messages']);
    expect(report['partitions']?.rows).toBe(0);
    expect(await partitionDays('messages')).toEqual(before);
  });

  it('C9 a day into which a transaction is still writing is left for the next time', async () => {
    await oldMessage(30);
    const writer = await db.connect();
    await writer.query('BEGIN');
    await writer.query(`SELECT FROM ${db.quoted}.messages WHERE topic = 'old' FOR UPDATE`);
    const report = await pruneNow({ messagesDays: 20 });
    expect(report['partitions']).toMatchObject({ rows: 0 });
    expect(await partitionDays('messages')).toContain(30);
    await writer.query('ROLLBACK');
    await pruneNow({ messagesDays: 20 });
    expect(await partitionDays('messages')).not.toContain(30);
  });

  it('C9 a partition that was detached and not dropped is dropped by the next run', async () => {
    const id = await oldMessage(25);
    const { rows } = await db.query<{ partition: string }>(
      `SELECT c.relname AS partition FROM ${db.quoted}.messages m JOIN pg_class c ON c.oid = m.tableoid WHERE m.id = $1`,
      [id],
    );
    const { partition } = only(rows);
    await db.query(`ALTER TABLE ${db.quoted}.messages DETACH PARTITION ${db.quoted}.${partition}`);
    const report = await pruneNow({ messagesDays: 20 });
    expect(report['partitions']?.rows).toBe(1);
    const left = await db.query(`SELECT to_regclass($1) AS name`, [`${db.quoted}.${partition}`]);
    expect(left.rows).toEqual([{ name: null }]);
  });

  it('C9 partitions are made ahead once, by whoever comes first', async () => {
    const database = openDatabase(db);
    await db.query(`SELECT ${db.quoted}.make_partitions(60)`);
    const { rows } = await db.query<{ partition: string; parent: string }>(
      `SELECT b.partition::text, p.parent FROM (VALUES ('messages'), ('attempts')) p(parent)
         CROSS JOIN LATERAL ${db.quoted}.partition_bounds(($1 || '.' || p.parent)::regclass) b
        WHERE b.day > (now() AT TIME ZONE 'UTC')::date + 50`,
      [db.quoted],
    );
    expect(rows).toHaveLength(20);
    for (const { partition } of rows) {
      const { rows: named } = await db.query<{ statement: string }>(
        `SELECT format('DROP TABLE %I.%I', $1::text, relname) AS statement FROM pg_class WHERE oid = $2::regclass`,
        [db.schema, partition.includes('.') ? partition : `${db.quoted}.${partition}`],
      );
      await db.query(only(named).statement);
    }
    const made = await Promise.all([1, 2, 3, 4].map(() => makePartitions(database)));
    expect(made.reduce((sum, { made: count }) => sum + count, 0)).toBe(20);
    expect(made.filter(({ made: count }) => count > 0)).toEqual([{ made: 20, daysAhead: 60 }]);
    expect(await makePartitions(database)).toEqual({ made: 0, daysAhead: 60 });
  });
});

describe('rows', () => {
  it('N7 C9 old dedupe keys go in batches with pauses between, with a report of rows and time', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.dedupe_keys (message_id, namespace, topic, dedupe_key)
       SELECT ${db.quoted}.id_at(now() - interval '40 days' + n * interval '1 ms'), 'default', 'old', n::text
         FROM generate_series(1, 2500) n
       UNION ALL SELECT ${db.quoted}.id_at(now() - interval '20 days'), 'default', 'old', 'remembered'`,
    );
    const { rows: before } = await db.query<{ xid: string }>(
      'SELECT pg_current_xact_id()::text AS xid',
    );
    const report = await pruneNow({ dedupeKeysDays: 30, batchSize: 1000, pauseMs: 50 });
    const { rows: after } = await db.query<{ xid: string }>(
      'SELECT pg_current_xact_id()::text AS xid',
    );
    expect(report['dedupe keys']).toMatchObject({ rows: 2500 });
    expect(report['dedupe keys']?.ms, 'two pauses').toBeGreaterThanOrEqual(100);
    // three transactions that wrote: 1,000, 1,000 and 500
    const transactions = Number(only(after).xid) - Number(only(before).xid) - 1;
    expect(transactions).toBeGreaterThanOrEqual(3);
    const { rows } = await db.query(`SELECT dedupe_key FROM ${db.quoted}.dedupe_keys`);
    expect(rows).toEqual([{ dedupe_key: 'remembered' }]);
  });

  it('C9 dead letters wait for a person, unless a limit says otherwise; then the record stays', async () => {
    const destinationId = await defineDestination(db, 'graves');
    const { rows } = await db.query<{ message_id: string }>(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code)
       SELECT ${db.quoted}.new_id(), $1, now() - n * interval '4 days', 1, 1, 'rejected', 'refused'
         FROM generate_series(1, 3) n RETURNING message_id`,
      [destinationId],
    );
    expect(Object.keys(await pruneNow({ messagesDays: null }))).not.toContain('dead letters');
    const report = await pruneNow({ messagesDays: null, deadLettersDays: 7, batchSize: 1 });
    expect(report['dead letters']).toMatchObject({ rows: 2 });
    const { rows: record } = await db.query<{ message_id: string }>(
      `SELECT message_id FROM ${db.quoted}.attempts WHERE state = 'discarded' AND destination_id = $1`,
      [destinationId],
    );
    expect(record.map((row) => row.message_id).toSorted()).toEqual(
      rows
        .slice(1)
        .map((row) => row.message_id)
        .toSorted(),
    );
    const { rows: actions } = await db.query(
      `SELECT actor, action, count::int FROM ${db.quoted}.operator_actions WHERE actor = 'retention'`,
    );
    expect(actions).toEqual([
      { actor: 'retention', action: 'discard_dead_letters', count: 1 },
      { actor: 'retention', action: 'discard_dead_letters', count: 1 },
    ]);
  });

  it('C9 unrouted messages go with their day', async () => {
    await pruneNow({ messagesDays: 7 });
    await db.query(
      `INSERT INTO ${db.quoted}.unrouted_messages (message_id)
       SELECT ${db.quoted}.id_at(now() - interval '700 days' + n * interval '1 ms') FROM generate_series(1, 5) n`,
    );
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue(topic => 'nobody.wants.this')`,
    );
    const report = await pruneNow({ messagesDays: 7, batchSize: 2 });
    expect(report['unrouted messages']).toMatchObject({ rows: 5 });
    const left = await db.query(`SELECT message_id FROM ${db.quoted}.unrouted_messages`);
    expect(left.rows).toEqual([{ message_id: only(rows).id }]);
  });
});

describe('the daily run', () => {
  it('C9 one of several relays begins it, once a day', async () => {
    const databases = [openDatabase(db), openDatabase(db), openDatabase(db)];
    const ask = () =>
      Promise.all(
        [...databases, ...databases].map((database) => dueMaintenance(database, 'daily', '02:00')),
      );
    expect((await ask()).filter(Boolean)).toHaveLength(1);
    expect((await ask()).filter(Boolean)).toHaveLength(0);
    // yesterday's run, at the same hour
    await db.query(
      `UPDATE ${db.quoted}.maintenance_runs SET ran_at = ran_at - interval '1 day' WHERE task = 'daily'`,
    );
    expect((await ask()).filter(Boolean)).toHaveLength(1);
  });

  it('C9 a run that happened after the time of day is not due before the next one', async () => {
    const database = openDatabase(db);
    const { rows } = await db.query<{ earlier: string; later: string }>(
      `SELECT to_char(now() AT TIME ZONE 'UTC' - interval '2 minutes', 'HH24:MI') AS earlier,
              to_char(now() AT TIME ZONE 'UTC' + interval '2 minutes', 'HH24:MI') AS later`,
    );
    const { earlier, later } = only(rows);
    expect(await dueMaintenance(database, 'hourly', earlier)).toBe(true);
    // the time that comes in two minutes was due a day ago, before the last run
    expect(await dueMaintenance(database, 'hourly', later)).toBe(false);
  });
});
