// Partitions are days: created 60 ahead, dropped after they have expired, and never while anything in them is pending,
// in flight, dead or being written. Dropping a partition blocks no other session.

import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settleDelivered } from '../support/settling.js';

const db = testDatabase({ allPartitions: true });
let queue: Queue;

const kept = '7 days';

beforeAll(async () => {
  queue = await makeQueue(db);
  await db.query(`SELECT ${db.quoted}.make_partitions(60, current_date - 40)`);
});

function detachStatement(partition: string, how: string): RegExp {
  return new RegExp(`^ALTER TABLE .+\\.messages DETACH PARTITION .+\\.${partition} ${how}$`);
}

type Expired = { partition: string; day: string; in_use: string | null; statement: string | null };

async function expired(messagesFor = kept, attemptsFor = kept): Promise<Expired[]> {
  const { rows } = await db.query<Expired>(
    `SELECT partition, day::text, in_use, statement FROM ${db.quoted}.expired_partitions($1, $2)`,
    [messagesFor, attemptsFor],
  );
  return rows;
}

/** The name of the partition of a day, that many days ago in UTC. */
async function partitionOf(table: 'messages' | 'attempts', daysAgo: number): Promise<string> {
  const { rows } = await db.query<{ name: string }>(
    `SELECT $1::text || to_char((now() AT TIME ZONE 'UTC')::date - $2::int, '_YYYYMMDD') AS name`,
    [table, daysAgo],
  );
  return only(rows).name;
}

async function find(table: 'messages' | 'attempts', daysAgo: number): Promise<Expired> {
  const name = await partitionOf(table, daysAgo);
  return only((await expired()).filter((row) => row.partition === name));
}

async function exists(partition: string): Promise<boolean> {
  const { rows } = await db.query(
    `SELECT FROM pg_class WHERE relname = $1 AND relnamespace = $2::text::regnamespace`,
    [partition, db.quoted],
  );
  return rows.length === 1;
}

/** A message as if it had been enqueued that many days ago, at noon. */
async function oldMessage(daysAgo: number, on: pg.Pool | pg.Client = db.pool): Promise<string> {
  const { rows } = await on.query<{ id: string }>(
    `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
     SELECT 2, overlay(uuid_part::text PLACING substr(${db.quoted}.new_id()::text, 15) FROM 15)::uuid, now(),
            pg_current_xact_id(), 'default', $2, '{}'
       FROM (SELECT ${db.quoted}.id_at((((now() AT TIME ZONE 'UTC')::date - $1::int)::timestamp + interval '12 hours')
               AT TIME ZONE 'UTC') AS uuid_part) x
     RETURNING id`,
    [daysAgo, queue.topic],
  );
  return only(rows).id;
}

async function oldDelivery(daysAgo: number): Promise<string> {
  const id = await oldMessage(daysAgo);
  await db.query(
    `INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, bytes, namespace)
     VALUES ($1, $2, now() - interval '1 day', 2, 'default')`,
    [id, queue.id],
  );
  return id;
}

async function daysAhead(on: pg.Pool | pg.PoolClient = db.pool): Promise<number> {
  const { rows } = await on.query<{ days: number }>(
    `SELECT ${db.quoted}.partition_days_ahead() AS days`,
  );
  return only(rows).days;
}

describe('creating partitions', () => {
  it('C9 N9 they reach 60 days ahead, and creating them again does nothing', async () => {
    expect(await daysAhead()).toBe(60);
    const { rows } = await db.query<{ made: number }>(
      `SELECT ${db.quoted}.make_partitions() AS made`,
    );
    expect(only(rows).made).toBe(0);
  });

  it('the check for missing ones reads the list once, and not once for each day', async () => {
    type Explained = { 'QUERY PLAN': [{ Plan: Record<string, number> }] };
    const client = await db.connect();
    const readBy = async (sql: string): Promise<number> => {
      // the first call of a connection also fills its catalog cache
      await client.query(sql);
      const { rows } = await client.query<Explained>(
        `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${sql}`,
      );
      const plan = only(rows)['QUERY PLAN'][0].Plan;
      return (plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0);
    };
    const list = await readBy(
      `SELECT count(*) FROM ${db.quoted}.partition_bounds('${db.quoted}.messages')`,
    );
    expect(list).toBeGreaterThan(0);
    expect(await readBy(`SELECT ${db.quoted}.make_partitions()`)).toBeLessThan(10 * list);
  });

  it('C9 concurrent calls create each partition once', async () => {
    const clients = await Promise.all([1, 2, 3, 4].map(() => db.connect()));
    const made = await Promise.all(
      clients.map(async (client) => {
        const { rows } = await client.query<{ made: number }>(
          `SELECT ${db.quoted}.make_partitions(63) AS made`,
        );
        return only(rows).made;
      }),
    );
    expect(made.toSorted((a, b) => a - b)).toEqual([0, 0, 0, 6]);
    expect(await daysAhead()).toBe(63);
  });

  it('C9 N12 the health check raises an alarm below 30 days', async () => {
    const check = async (on: pg.PoolClient): Promise<{ ok: boolean; detail: string }> => {
      const { rows } = await on.query<{ ok: boolean; detail: string }>(
        `SELECT ok, detail FROM ${db.quoted}.health_check() WHERE name = 'partitions'`,
      );
      return only(rows);
    };
    const work = db.inTransaction(async (client) => {
      const cutTo = async (days: number): Promise<void> => {
        for (let day = days + 1; day <= 63; day += 1) {
          await client.query(
            `DROP TABLE IF EXISTS ${db.quoted}.${await partitionOf('attempts', -day)}`,
          );
        }
      };
      await cutTo(30);
      expect(await daysAhead(client)).toBe(30);
      expect(await check(client)).toMatchObject({ ok: true });
      await cutTo(29);
      expect(await check(client)).toMatchObject({
        ok: false,
        detail: expect.stringContaining('29 days ahead') as string,
      });
      throw new Error('put everything back');
    });
    await expect(work).rejects.toThrow('put everything back');
    expect(await daysAhead()).toBe(63);
  });

  it('C9 a message is in the partition of its day', async () => {
    const id = await queue.enqueueOne();
    const { rows } = await db.query<{ name: string }>(
      `SELECT c.relname AS name FROM ${db.quoted}.messages m JOIN pg_class c ON c.oid = m.tableoid WHERE id = $1`,
      [id],
    );
    expect(only(rows).name).toBe(await partitionOf('messages', 0));
    await settleDelivered(db, await queue.claim());
  });
});

describe('dropping partitions', () => {
  it('C9 only expired ones are listed, each kind after its own time', async () => {
    const boundary = await partitionOf('messages', 7);
    const list = await expired('7 days', '30 days');
    const names = list.map((row) => row.partition);
    // a day has expired when its last moment has
    expect(names).toContain(await partitionOf('messages', 8));
    expect(names).not.toContain(boundary);
    expect(names).toContain(await partitionOf('attempts', 31));
    expect(names).not.toContain(await partitionOf('attempts', 29));
    const days = list.map((row) => row.day);
    expect(days).toEqual(days.toSorted());
  });

  it('C9 N7 the returned statements detach and then drop', async () => {
    const id = await oldMessage(20);
    const name = await partitionOf('messages', 20);
    const detach = await find('messages', 20);
    expect(detach.statement).toMatch(detachStatement(name, 'CONCURRENTLY'));
    const client = await db.connect();
    await client.query(detach.statement ?? '');
    const { rows } = await db.query(`SELECT FROM ${db.quoted}.messages WHERE id = $1`, [id]);
    expect(rows).toEqual([]);
    const drop = await find('messages', 20);
    expect(drop.statement).toMatch(new RegExp(`^DROP TABLE .+[.]${name}$`));
    await client.query(drop.statement ?? '');
    expect(await exists(name)).toBe(false);
    expect((await expired()).map((row) => row.partition)).not.toContain(name);
  });

  it('C9 a day with a pending delivery is kept, of messages and of attempts', async () => {
    await oldDelivery(19);
    const inUse = { in_use: 'deliveries are waiting', statement: null };
    expect(await find('messages', 19)).toMatchObject(inUse);
    expect(await find('attempts', 19)).toMatchObject(inUse);
    expect((await find('messages', 18)).in_use).toBeNull();
  });

  it('C9 a day with a delivery in flight is kept, and removable once it was delivered', async () => {
    const id = await oldDelivery(17);
    const claim = await queue.claim();
    expect(claim.ids).toContain(id);
    const inUse = { in_use: 'deliveries are in flight', statement: null };
    expect(await find('messages', 17)).toMatchObject(inUse);
    expect(await find('attempts', 17)).toMatchObject(inUse);
    await settleDelivered(db, claim);
    expect((await find('messages', 17)).in_use).toBeNull();
  });

  it('C9 N5 a day with a dead letter is kept', async () => {
    await queue.kill(await oldDelivery(16));
    const inUse = { in_use: 'dead letters wait for an operator', statement: null };
    expect(await find('messages', 16)).toMatchObject(inUse);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
    expect((await find('messages', 16)).in_use).toBeNull();
  });

  it('C9 a day into which an open transaction has written is kept until it ends', async () => {
    const inUse = { in_use: 'an open transaction has written into it', statement: null };
    const client = await db.connect();
    await client.query('BEGIN');
    const id = await oldMessage(15, client);
    expect(await find('messages', 15)).toMatchObject(inUse);
    expect(await find('attempts', 15), 'the message may need it').toMatchObject(inUse);
    await client.query('ROLLBACK');
    expect((await find('messages', 15)).in_use).toBeNull();
    await client.query('BEGIN');
    await client.query(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       VALUES ($1, $2, 1, 1, 'dispatched', now())`,
      [id, queue.id],
    );
    expect(await find('attempts', 15)).toMatchObject(inUse);
    await client.query('ROLLBACK');
    expect((await find('attempts', 15)).in_use).toBe('the messages of that day are removed first');
  });
});

describe('a detach in progress', () => {
  it('C9 N12 blocks no other session, and one that was interrupted is finished', async () => {
    const name = await partitionOf('messages', 14);
    const reader = await db.connect();
    await reader.query('BEGIN');
    await reader.query(`SELECT count(*) FROM ${db.quoted}.messages`);
    const { statement } = await find('messages', 14);
    const detacher = await db.connect();
    const backend = await backendId(detacher);
    const detaching = detacher.query(statement ?? '').then(
      () => 'detached',
      () => 'cut short',
    );
    await waitUntilBlocked(db, backend);

    const other = await db.connect();
    await other.query(`SET lock_timeout = '1s'`);
    await enqueueMany(db, other, [{ topic: queue.topic }]);
    const claim = await queue.claim({ on: other });
    expect(claim.ids.length).toBeGreaterThan(0);
    expect(await settleDelivered(db, claim, other)).toMatchObject({ lost: [] });
    await other.query(`SELECT count(*) FROM ${db.quoted}.messages`);

    await db.query('SELECT pg_terminate_backend($1)', [backend]);
    expect(await detaching).toBe('cut short');
    expect((await find('messages', 14)).statement).toMatch(detachStatement(name, 'FINALIZE'));
    await reader.query('COMMIT');
    await other.query((await find('messages', 14)).statement ?? '');
    await other.query((await find('messages', 14)).statement ?? '');
    expect(await exists(name)).toBe(false);
  });
});
