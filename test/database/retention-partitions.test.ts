// Relays and `waybill maintain` drop expired days, and never a day that is still needed, also if the need begins while
// the run is in progress.

import { describe, expect, it } from 'vitest';

import { makePartitions } from '../../src/relay/upkeep/partitions.js';
import { defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { oldMessage, partitionDays, pruneNow } from '../support/retention.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ allPartitions: true });

async function deliveredAttempt(messageId: string, destinationId: number): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
     VALUES ($1, $2, 1, 1, 'dispatched', now())`,
    [messageId, destinationId],
  );
}

describe('partitions', () => {
  it('C9 N7 expired days are dropped and counted, and pending, leased and dead deliveries keep their day', async () => {
    const destinationId = await defineDestination(db, 'kept');
    await db.query(`SELECT ${db.quoted}.make_partitions(0, (now() AT TIME ZONE 'UTC')::date - 10)`);
    const finished = await oldMessage(db, 15);
    await deliveredAttempt(finished, destinationId);
    const waiting = await oldMessage(db, 14);
    await db.query(
      `INSERT INTO ${db.quoted}.deliveries (message_id, available_at, bytes, destination_id, namespace)
       VALUES ($1, now() + interval '1 day', 1, $2, 'default')`,
      [waiting, destinationId],
    );
    const held = await oldMessage(db, 13);
    await db.query(
      `INSERT INTO ${db.quoted}.leases (id, relay_id, claimed_at, expires_at, duration, remaining, destination_id,
              quarantined, message_ids, claim_nos, tries)
       VALUES (gen_random_uuid(), gen_random_uuid(), now(), now() + interval '1 hour', '1 hour', 1, $2, false,
               ARRAY[$1::uuid], '{1}', '{1}')`,
      [held, destinationId],
    );
    const dead = await oldMessage(db, 12);
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason)
       VALUES ($1, $2, now(), 1, 1, 'rejected')`,
      [dead, destinationId],
    );
    const recent = await oldMessage(db, 3);
    await deliveredAttempt(recent, destinationId);

    const report = await pruneNow(db, { messagesDays: 7, attemptsDays: 9 });
    expect(report['partitions']).toMatchObject({ what: 'partitions', rows: 2 });
    expect(report['partitions']?.ms).toBeGreaterThanOrEqual(0);
    // the last day that is wholly older than seven days is the eighth before today, and so on
    expect((await partitionDays(db, 'messages')).filter((ago) => ago > 7)).toEqual([12, 13, 14]);
    expect((await partitionDays(db, 'attempts')).filter((ago) => ago > 9)).toEqual([12, 13, 14]);
    expect(await partitionDays(db, 'messages')).toEqual(
      expect.arrayContaining([1, 2, 3, 4, 5, 6, 7]),
    );
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.messages WHERE topic = 'old' ORDER BY id`,
    );
    expect(rows.map((row) => row.id)).toEqual([waiting, held, dead, recent]);

    const again = await pruneNow(db, { messagesDays: 7, attemptsDays: 9 });
    expect(again['partitions'], 'nothing is left to do').toMatchObject({ rows: 0 });
  });

  it('C9 without a limit nothing is ever removed', async () => {
    await oldMessage(db, 500);
    const before = await partitionDays(db, 'messages');
    expect(before).toContain(500);
    const report = await pruneNow(db, {
      messagesDays: null,
      attemptsDays: null,
      dedupeKeysDays: null,
      inboxDays: null,
    });
    expect(Object.keys(report)).toEqual([
      'shadow comparisons',
      'jobs',
      'discarded letters',
      'removed endpoints',
      'reports',
      'partitions',
      'statistics',
    ]);
    expect(report['partitions']?.rows).toBe(0);
    expect(await partitionDays(db, 'messages')).toEqual(before);
  });

  it('C9 a day into which a transaction is still writing is left for the next run', async () => {
    await oldMessage(db, 30);
    const writer = await db.connect();
    await writer.query('BEGIN');
    await writer.query(`SELECT FROM ${db.quoted}.messages WHERE topic = 'old' FOR UPDATE`);
    const report = await pruneNow(db, { messagesDays: 20 });
    expect(report['partitions']).toMatchObject({ rows: 0 });
    expect(await partitionDays(db, 'messages')).toContain(30);
    await writer.query('ROLLBACK');
    await pruneNow(db, { messagesDays: 20 });
    expect(await partitionDays(db, 'messages')).not.toContain(30);
  });

  it('C9 a day that is needed since the run began is left for the next run', async () => {
    const destinationId = await defineDestination(db, 'late');
    await oldMessage(db, 41);
    const late = await oldMessage(db, 40);
    const reader = await db.connect();
    await reader.query('BEGIN');
    await reader.query(`SELECT count(*) FROM ${db.quoted}.messages`);
    const pruned = pruneNow(db, { messagesDays: 35 });
    // the run has seen both days, and waits for the reader before it can remove the first
    await waitFor(
      async () => {
        const { rows } = await db.query(
          `SELECT FROM pg_stat_activity WHERE datname = current_database()
              AND application_name = 'waybill retention' AND cardinality(pg_blocking_pids(pid)) > 0`,
        );
        return rows.length === 1;
      },
      { what: 'the run to wait for the reader' },
    );
    await db.query(
      `INSERT INTO ${db.quoted}.deliveries (message_id, available_at, bytes, destination_id, namespace)
       VALUES ($1, now(), 4, $2, 'default')`,
      [late, destinationId],
    );
    await reader.query('COMMIT');
    expect((await pruned)['partitions']).toMatchObject({ rows: 1 });
    for (const table of ['messages', 'attempts'] as const)
      expect((await partitionDays(db, table)).filter((ago) => ago >= 35)).toEqual([40]);
  });

  it('C9 a partition that was detached and not dropped is dropped by the next run', async () => {
    const id = await oldMessage(db, 25);
    const { rows } = await db.query<{ partition: string }>(
      `SELECT c.relname AS partition FROM ${db.quoted}.messages m JOIN pg_class c ON c.oid = m.tableoid WHERE m.id = $1`,
      [id],
    );
    const { partition } = only(rows);
    await db.query(`ALTER TABLE ${db.quoted}.messages DETACH PARTITION ${db.quoted}.${partition}`);
    const report = await pruneNow(db, { messagesDays: 20 });
    expect(report['partitions']?.rows).toBe(1);
    const left = await db.query(`SELECT to_regclass($1) AS name`, [`${db.quoted}.${partition}`]);
    expect(left.rows).toEqual([{ name: null }]);
  });

  it('C9 partitions are created ahead once, by the first of several processes', async () => {
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
