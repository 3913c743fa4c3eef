// Thinning: of an expired day with a few messages that are still needed, only these stay, with their attempts. They
// never disappear, whichever transactions, retries and crashes come between the steps.

import type pg from 'pg';
import { describe, expect, it } from 'vitest';

import { cliOn } from '../support/cli.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { planReplay, startReplay, step } from '../support/replays.js';
import { agePending, deliveredDay, partitionDays, pruneNow } from '../support/retention.js';
import { settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();
const kept = { messagesDays: 7, attemptsDays: 9 };

/** A day of delivered messages with one dead letter; returns the id of the dead one. */
async function dayWithDeadLetter(queue: Queue, daysAgo: number, count: number): Promise<string> {
  await deliveredDay(db, daysAgo, count, queue.id);
  const id = await agePending(db, await queue.enqueueOne(), daysAgo);
  await queue.kill(id);
  return id;
}

async function partitionOf(table: string, daysAgo: number): Promise<string> {
  const { rows } = await db.query<{ name: string }>(
    `SELECT $1 || to_char((now() AT TIME ZONE 'UTC')::date - $2::int, '_YYYYMMDD') AS name`,
    [table, daysAgo],
  );
  return only(rows).name;
}

async function rowsOf(table: 'messages' | 'attempts', daysAgo: number): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.${await partitionOf(table, daysAgo)}`,
  );
  return only(rows).count;
}

async function bytesOf(table: 'messages' | 'attempts', daysAgo: number): Promise<number> {
  const { rows } = await db.query<{ bytes: number }>(
    `SELECT pg_total_relation_size($1::regclass)::int AS bytes`,
    [`${db.quoted}.${await partitionOf(table, daysAgo)}`],
  );
  return only(rows).bytes;
}

/** One step of thinning, in a transaction of its own; a lock that is missing is no error. */
async function stepOf(
  table: 'messages' | 'attempts',
  daysAgo: number,
  on: pg.Pool | pg.Client = db.pool,
): Promise<number | string | null> {
  try {
    const { rows } = await on.query<{ rows: number | null }>(
      `SELECT ${db.quoted}.remove_partition($1, '7 days', '9 days')::int AS rows`,
      [await partitionOf(table, daysAgo)],
    );
    return only(rows).rows;
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code === '55P03') return message;
    throw error;
  }
}

async function countOf(on: pg.Pool | pg.Client, id: string): Promise<number> {
  const { rows } = await on.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.messages WHERE id = $1`,
    [id],
  );
  return only(rows).count;
}

async function retry(queue: Queue): Promise<void> {
  await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [queue.name]);
}

it('C9 N7 `waybill maintain` says how many partitions it thinned, and no table of another origin stops it', async () => {
  const others = ['messages_99999999', 'messages_20200101', 'attempts_20200230_kept'];
  for (const name of others) await db.query(`CREATE TABLE ${db.quoted}.${name} AS SELECT 1 AS row`);
  await dayWithDeadLetter(await makeQueue(db), 62, 999);
  const { code, stdout, stderr } = await cliOn(db, ['maintain']);
  expect(`${code} ${stderr}`).toMatch(/^0 /);
  expect(stdout).toMatch(
    /^[12] partitions thinned: only rows of messages that are still needed stay$/m,
  );
  expect((await cliOn(db, ['maintain'])).stdout, 'once').not.toContain('thinned');
  for (const name of others) {
    await db.query(`SELECT FROM ${db.quoted}.${name}`);
    await db.query(`DROP TABLE ${db.quoted}.${name}`);
  }
});

describe('a day with one dead letter', () => {
  it.each([
    ['the role maintenance', 'test_maintenance', 20],
    ['the owner', undefined, 21],
  ] as const)(
    'C9 N5 loses its other messages and attempts, and its disk space, by %s; the dead letter is delivered after a retry',
    async (_who, login, day) => {
      const queue = await makeQueue(db);
      const id = await dayWithDeadLetter(queue, day, 999);
      const before = [await bytesOf('messages', day), await bytesOf('attempts', day)];
      const report = await pruneNow(db, kept, login);
      expect(report['partitions']).toMatchObject({ rows: 2 * 999, thinned: 2 });
      expect(await rowsOf('messages', day)).toBe(1);
      expect((await queue.attempts(id)).map(({ claim_no, state }) => [claim_no, state])).toEqual([
        [1, 'failed'],
      ]);
      expect(await rowsOf('attempts', day)).toBe(1);
      expect(await bytesOf('messages', day)).toBeLessThan((before[0] ?? 0) / 3);
      expect(await bytesOf('attempts', day)).toBeLessThan((before[1] ?? 0) / 1.5);
      expect((await pruneNow(db, kept, login))['partitions'], 'once').toMatchObject({ rows: 0 });

      await retry(queue);
      const claim = await queue.claimOne();
      expect(claim.row).toMatchObject({ message_id: id, claim_no: 2, topic: queue.topic });
      expect(claim.row.payload).toEqual({ n: 1 });
      await settleDelivered(db, claim);
      expect((await queue.attempts(id)).map(({ claim_no, state }) => [claim_no, state])).toEqual([
        [1, 'failed'],
        [2, 'dispatched'],
      ]);
      expect(await misplaced(db)).toEqual([]);
      const last = await pruneNow(db, kept, login);
      expect(last['partitions'], 'nothing needs it any more').toMatchObject({ rows: 3 });
      expect(await partitionDays(db, 'messages')).not.toContain(day);
      expect(await partitionDays(db, 'attempts')).not.toContain(day);
    },
  );

  it('C9 P5 has partitions like any other: indexes, constraints, policies, triggers, owner, rights and bounds', async () => {
    const queue = await makeQueue(db);
    await dayWithDeadLetter(queue, 22, 20);
    const shape = async (table: 'messages' | 'attempts') => {
      const name = await partitionOf(table, 22);
      const { rows } = await db.query(
        `SELECT c.relname, c.relowner, c.relacl, c.relrowsecurity, c.relforcerowsecurity, c.reloptions,
                pg_get_expr(c.relpartbound, c.oid) AS bound,
                ARRAY(SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i WHERE i.indrelid = c.oid ORDER BY 1) AS indexes,
                ARRAY(SELECT count(*)::text FROM pg_inherits h JOIN pg_index i ON i.indexrelid = h.inhrelid
                       WHERE i.indrelid = c.oid) AS attached,
                ARRAY(SELECT pg_get_constraintdef(k.oid) FROM pg_constraint k WHERE k.conrelid = c.oid ORDER BY 1) AS constraints,
                ARRAY(SELECT p.polname || p.polroles::text FROM pg_policy p WHERE p.polrelid = c.oid ORDER BY 1) AS policies,
                ARRAY(SELECT t.tgname || t.tgenabled::text FROM pg_trigger t WHERE t.tgrelid = c.oid ORDER BY 1) AS triggers
           FROM pg_class c WHERE c.oid = $1::regclass`,
        [`${db.quoted}.${name}`],
      );
      return only(rows);
    };
    const before = [await shape('messages'), await shape('attempts')];
    expect((await pruneNow(db, kept))['partitions']).toMatchObject({ thinned: 2 });
    expect([await shape('messages'), await shape('attempts')]).toEqual(before);
    const { rows } = await db.query(
      `SELECT name, detail FROM ${db.quoted}.health_check() WHERE NOT ok`,
    );
    expect(rows).toEqual([]);
    const left = await db.query(
      `SELECT relname FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relname LIKE '%\\_kept%'`,
      [db.quoted],
    );
    expect(left.rows, 'no copy is left').toEqual([]);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('C9 unblocks its key after a retry', async () => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    await deliveredDay(db, 23, 20, queue.id);
    const id = await agePending(db, await queue.enqueueOne({ key: 'k' }), 23);
    await queue.kill(id);
    const later = await queue.enqueueOne({ key: 'k' });
    expect((await queue.claim()).ids).toEqual([]);
    expect((await pruneNow(db, kept))['partitions']).toMatchObject({ thinned: 2 });
    expect([await rowsOf('messages', 23), await rowsOf('attempts', 23)]).toEqual([1, 1]);
    await retry(queue);
    for (const expected of [id, later]) {
      const claim = await queue.claimOne();
      expect(claim.id).toBe(expected);
      await settleDelivered(db, claim);
    }
  });

  it('C9 M5 can be replayed once it was delivered, and the messages that are gone cannot', async () => {
    const queue = await makeQueue(db);
    const [gone = ''] = await deliveredDay(db, 24, 20, queue.id);
    const id = await agePending(db, await queue.enqueueOne(), 24);
    await queue.kill(id);
    await pruneNow(db, { messagesDays: 7, attemptsDays: 30 });
    expect([await rowsOf('messages', 24), await rowsOf('attempts', 24)]).toEqual([1, 21]);
    await retry(queue);
    await settleDelivered(db, await queue.claimOne());
    const plan = await planReplay(db, queue.name, { ids: [gone, id] });
    expect(plan).toMatchObject({ messages: '1', expired: 1 });
    const { kept_since: since } = await planReplay(db, queue.name);
    expect(since, 'the thinned day is not complete').not.toBeNull();
    expect((since as Date).getTime()).toBeGreaterThan(Date.now() - 24 * 86_400_000);
    const { replay_id: replay } = await startReplay(db, queue.name, { ids: [gone, id] });
    expect(await step(db, replay)).toMatchObject({ replayed: 1 });
    const claim = await queue.claimOne();
    expect(claim.row).toMatchObject({ message_id: id, claim_no: 3 });
    await settleDelivered(db, claim);
  });
});

describe('what else is needed', () => {
  it('C9 unrouted messages and those with a far due time stay alone too', async () => {
    const queue = await makeQueue(db);
    await deliveredDay(db, 25, 20, queue.id);
    const scheduled = await agePending(
      db,
      await queue.enqueueOne({ availableAt: '2099-01-01T00:00:00Z' }),
      25,
    );
    await deliveredDay(db, 26, 20, queue.id);
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue_many('[{"topic": "un.wanted"}]')`,
    );
    const unrouted = await agePending(db, only(rows).id, 26);
    await pruneNow(db, kept);
    for (const [day, id] of [
      [25, scheduled],
      [26, unrouted],
    ] as const) {
      expect([await rowsOf('messages', day), await rowsOf('attempts', day)]).toEqual([1, 0]);
      expect(await countOf(db.pool, id)).toBe(1);
    }
    await db.query(
      `SELECT ${db.quoted}.cancel($1), (SELECT seen FROM ${db.quoted}.discard_unrouted())`,
      [scheduled],
    );
  });

  it('C9 a cursor that has not read the day keeps all of it', async () => {
    const queue = await makeQueue(db);
    const id = await dayWithDeadLetter(queue, 27, 20);
    await db.query(`SELECT ${db.quoted}.define_destination('reader')`);
    await db.query(`SELECT ${db.quoted}.define_cursor('reader', 'beginning')`);
    await pruneNow(db, kept);
    expect([await rowsOf('messages', 27), await rowsOf('attempts', 27)]).toEqual([21, 21]);
    await db.query(`DELETE FROM ${db.quoted}.cursors WHERE name = 'reader'`);
    await pruneNow(db, kept);
    expect([await rowsOf('messages', 27), await rowsOf('attempts', 27)]).toEqual([1, 1]);
    expect(await countOf(db.pool, id)).toBe(1);
  });

  it('C9 a day of which half is needed stays as it is, and is thinned when fewer are left', async () => {
    const queue = await makeQueue(db);
    await deliveredDay(db, 28, 3, queue.id);
    for (const id of await queue.enqueue(4)) await agePending(db, id, 28);
    const inUse = async () => {
      const { rows } = await db.query(
        `SELECT in_use, statement LIKE '%thin_partition%' AS thin FROM ${db.quoted}.expired_partitions('7 days', '9 days', $1)`,
        [await partitionOf('messages', 28)],
      );
      return only(rows);
    };
    expect(await inUse()).toEqual({ in_use: 'deliveries are waiting', thin: null });
    await settleDelivered(db, await queue.claim({ limit: 2 }));
    expect(await inUse()).toEqual({ in_use: null, thin: true });
    await pruneNow(db, kept);
    expect([await rowsOf('messages', 28), await rowsOf('attempts', 28)]).toEqual([2, 0]);
    await settleDelivered(db, await queue.claim({ limit: 1 }));
    expect(await inUse(), 'one of two').toEqual({ in_use: 'deliveries are waiting', thin: null });
    await settleDelivered(db, await queue.claim());
  });
});

describe('between the steps', () => {
  it('C9 every reader sees the message exactly once, also with a snapshot from before the copy', async () => {
    const queue = await makeQueue(db);
    const id = await dayWithDeadLetter(queue, 30, 20);
    const open = async () => {
      const client = await db.connect();
      await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
      await client.query('SELECT 1 FROM pg_class LIMIT 1');
      return client;
    };
    const old = await open();
    expect(await stepOf('messages', 30), 'copied').toBe(0);
    const young = await open();
    expect(await stepOf('messages', 30), 'notes who may not see the copy').toBe(0);
    const younger = await open();
    expect(await stepOf('messages', 30)).toContain('transactions from before its copy are open');
    expect(await countOf(old, id)).toBe(1);
    await old.query('COMMIT');
    expect(await stepOf('messages', 30)).toContain('transactions from before its copy are open');
    await young.query('COMMIT');
    expect(await stepOf('messages', 30)).toBe(20);
    expect(await countOf(younger, id), 'its snapshot is younger than the copy').toBe(1);
    await younger.query('COMMIT');
    expect(await rowsOf('messages', 30)).toBe(1);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('C9 a crash in any of them changes nothing, and the next run goes on', async () => {
    const queue = await makeQueue(db);
    const id = await dayWithDeadLetter(queue, 31, 20);
    for (const table of ['messages', 'attempts'] as const)
      for (let done = false; !done;) {
        const client = await db.connect();
        await client.query('BEGIN');
        const removed = await stepOf(table, 31, client);
        client.once('error', () => {});
        const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
        await db.query('SELECT pg_terminate_backend($1, 5000)', [only(rows).pid]);
        expect(await countOf(db.pool, id)).toBe(1);
        expect(await rowsOf(table, 31)).toBe(21);
        expect(await queue.attempts(id)).toHaveLength(1);
        expect(await stepOf(table, 31), 'the same step again').toBe(removed);
        done = removed !== 0;
      }
    expect([await rowsOf('messages', 31), await rowsOf('attempts', 31)]).toEqual([1, 1]);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('C9 a message that a replay brings back after the copy stays', async () => {
    const queue = await makeQueue(db);
    await dayWithDeadLetter(queue, 32, 20);
    expect(await stepOf('messages', 32)).toBe(0);
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.${await partitionOf('messages', 32)} WHERE topic = 'old' ORDER BY id LIMIT 1`,
    );
    const { id } = only(rows);
    const { replay_id: replay } = await startReplay(db, queue.name, { ids: [id] });
    const client = await db.connect();
    await client.query('BEGIN');
    expect(await step(db, replay, 10, client)).toMatchObject({ replayed: 1 });
    expect(await stepOf('messages', 32), 'the replay is writing').toBeNull();
    await client.query('COMMIT');
    await pruneNow(db, kept);
    expect([await rowsOf('messages', 32), await rowsOf('attempts', 32)]).toEqual([2, 2]);
    const claim = await queue.claimOne();
    expect(claim.row).toMatchObject({ message_id: id, claim_no: 2, topic: 'old' });
    await settleDelivered(db, claim);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('C9 an attempt that is recorded after the copy is not lost', async () => {
    const queue = await makeQueue(db);
    const id = await dayWithDeadLetter(queue, 33, 20);
    while ((await stepOf('messages', 33)) === 0);
    expect(await stepOf('attempts', 33)).toBe(0);
    await retry(queue);
    const claim = await queue.claim();
    const client = await db.connect();
    await client.query('BEGIN');
    await settle(db, claim, [{ id, outcome: 'retry', retryAfterMs: 0 }], client);
    expect(await stepOf('attempts', 33), 'the settle is writing').toBeNull();
    await client.query('COMMIT');
    await pruneNow(db, kept);
    expect(await rowsOf('attempts', 33)).toBe(2);
    await settleDelivered(db, await queue.claim());
    expect((await queue.attempts(id)).map(({ claim_no }) => claim_no)).toEqual([1, 2, 3]);
  });

  it('C9 the last step refuses a copy that lacks a row, under the lock', async () => {
    const queue = await makeQueue(db);
    const id = await dayWithDeadLetter(queue, 39, 20);
    const replace = async (table: 'messages' | 'attempts') =>
      db.query(
        `SELECT ${db.quoted}.replace_by_copy($1, $2, d, ${db.quoted}.id_at(d::timestamp AT TIME ZONE 'UTC'),
                  ${db.quoted}.id_at((d + 1)::timestamp AT TIME ZONE 'UTC'), 'infinity', 21)
           FROM (SELECT (now() AT TIME ZONE 'UTC')::date - 39 AS d) x`,
        [table, await partitionOf(table, 39)],
      );
    const refused = {
      code: '55P03',
      message: expect.stringContaining('is in use again') as string,
    };
    expect(await stepOf('messages', 39)).toBe(0);
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.${await partitionOf('messages', 39)} WHERE topic = 'old' ORDER BY id LIMIT 1`,
    );
    const { replay_id: replay } = await startReplay(db, queue.name, { ids: [only(rows).id] });
    expect(await step(db, replay)).toMatchObject({ replayed: 1 });
    await expect(replace('messages'), 'brought back by a replay').rejects.toMatchObject(refused);
    while ((await stepOf('messages', 39)) === 0);
    expect(await stepOf('attempts', 39)).toBe(0);
    await settleDelivered(db, await queue.claim());
    await expect(replace('attempts'), 'a new attempt').rejects.toMatchObject(refused);
    expect([await rowsOf('messages', 39), await rowsOf('attempts', 39)]).toEqual([2, 22]);
    expect(await countOf(db.pool, id)).toBe(1);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('C9 the attempts of a day stay while its messages could not be removed: a replay may need them', async () => {
    const queue = await makeQueue(db);
    await deliveredDay(db, 42, 5, queue.id);
    const reader = await db.connect();
    await reader.query('BEGIN');
    await reader.query(`SELECT FROM ${db.quoted}.${await partitionOf('messages', 42)}`);
    await pruneNow(db, kept, 'test_maintenance');
    expect([await rowsOf('messages', 42), await rowsOf('attempts', 42)]).toEqual([5, 5]);
    await reader.query('COMMIT');
    await pruneNow(db, kept, 'test_maintenance');
    expect(await partitionDays(db, 'attempts')).not.toContain(42);
  });

  it('C9 I6 no role, and no statement for psql, removes attempts while their messages can be replayed', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await deliveredDay(db, 43, 5, queue.id);
    const attempts = await partitionOf('attempts', 43);
    const { rows } = await db.query(
      `SELECT in_use, statement FROM ${db.quoted}.expired_partitions('7 days', '9 days', $1)`,
      [attempts],
    );
    expect(rows).toEqual([
      { in_use: 'the messages of that day are removed first', statement: null },
    ]);
    await as(db, 'test_maintenance', async (client) => {
      expect(await stepOf('attempts', 43, client)).toBeNull();
    });
    const { replay_id: replay } = await startReplay(db, queue.name, { ids: [id] });
    expect(await step(db, replay)).toMatchObject({ replayed: 1 });
    const claim = await queue.claimOne();
    expect(claim.row).toMatchObject({ message_id: id, claim_no: 2 });
    await settleDelivered(db, claim);
    await pruneNow(db, kept);
    expect(await partitionDays(db, 'attempts')).not.toContain(43);
  });

  it('C9 a copy is never used in the transaction that made it', async () => {
    const queue = await makeQueue(db);
    await dayWithDeadLetter(queue, 41, 20);
    const client = await db.connect();
    await client.query('BEGIN');
    for (let n = 0; n < 4; n += 1) expect(await stepOf('messages', 41, client)).toBe(0);
    await client.query('COMMIT');
    expect(await rowsOf('messages', 41)).toBe(21);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('C9 a copy from before a restore is made again, with the transactions of this server', async () => {
    const queue = await makeQueue(db);
    const id = await dayWithDeadLetter(queue, 44, 20);
    const shift = async (to: string) =>
      db.query(`UPDATE ${db.quoted}.messages SET transaction_id = ${to} WHERE id = $1`, [id]);
    await shift(`'9000000000'::xid8`);
    expect(await stepOf('messages', 44)).toBe(0);
    await db.query(`SELECT ${db.quoted}.repair_cursors()`);
    while ((await stepOf('messages', 44)) === 0);
    const { rows } = await db.query(
      `SELECT transaction_id < pg_current_xact_id() AS past FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    expect(rows).toEqual([{ past: true }]);
    expect(await rowsOf('messages', 44)).toBe(1);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('C9 two runs at the same time do it once', async () => {
    await pruneNow(db, kept);
    const queue = await makeQueue(db);
    const id = await dayWithDeadLetter(queue, 34, 200);
    const reports = await Promise.all([1, 2, 3].map(() => pruneNow(db, kept, 'test_maintenance')));
    const last = await pruneNow(db, kept);
    const removed = [...reports, last].map((report) => report['partitions']?.rows ?? 0);
    expect(removed.reduce((sum, rows) => sum + rows, 0)).toBe(400);
    expect([await rowsOf('messages', 34), await rowsOf('attempts', 34)]).toEqual([1, 1]);
    expect(await countOf(db.pool, id)).toBe(1);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('C9 a copy whose day is gone is dropped', async () => {
    await pruneNow(db, kept);
    const queue = await makeQueue(db);
    await dayWithDeadLetter(queue, 35, 20);
    expect(await stepOf('messages', 35)).toBe(0);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
    expect((await pruneNow(db, kept))['partitions']).toMatchObject({ rows: 21 + 22 });
    expect((await pruneNow(db, kept))['partitions']).toMatchObject({ rows: 0 });
    const { rows } = await db.query('SELECT to_regclass($1) AS copy', [
      `${db.quoted}.${await partitionOf('messages', 35)}_kept`,
    ]);
    expect(rows).toEqual([{ copy: null }]);
  });
});

describe('retention floors', () => {
  it('P16 a day with a protected message is not thinned, and neither are its attempts', async () => {
    const queue = await makeQueue(db);
    await dayWithDeadLetter(queue, 36, 20);
    await db.query(
      `INSERT INTO ${db.quoted}.retention_floors (topic, messages_days, attempts_days) VALUES ('old', 60, 60)`,
    );
    await pruneNow(db, kept);
    expect([await rowsOf('messages', 36), await rowsOf('attempts', 36)]).toEqual([21, 21]);
    await db.query(
      `UPDATE ${db.quoted}.retention_floors SET messages_days = 1 WHERE topic = 'old'`,
    );
    await pruneNow(db, kept);
    expect([await rowsOf('messages', 36), await rowsOf('attempts', 36)]).toEqual([1, 21]);
    await pruneNow(db, kept);
    expect(await rowsOf('attempts', 36), 'the record of the whole day counts').toBe(21);
    await db.query(`DELETE FROM ${db.quoted}.retention_floors WHERE topic = 'old'`);
    await pruneNow(db, kept);
    expect(await rowsOf('attempts', 36)).toBe(1);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });

  it('P16 a floor that comes after a day was thinned protects all of its attempts', async () => {
    const queue = await makeQueue(db);
    await dayWithDeadLetter(queue, 37, 20);
    await pruneNow(db, { messagesDays: 7, attemptsDays: null });
    expect([await rowsOf('messages', 37), await rowsOf('attempts', 37)]).toEqual([1, 21]);
    await db.query(
      `INSERT INTO ${db.quoted}.retention_floors (topic, attempts_days) VALUES ('old', 60)`,
    );
    await pruneNow(db, kept);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
    await pruneNow(db, kept);
    expect(await rowsOf('attempts', 37)).toBe(22);
    await db.query(`DELETE FROM ${db.quoted}.retention_floors WHERE topic = 'old'`);
  });

  it('P17 the identities of thinned messages stay with their attempts, and go with them', async () => {
    const queue = await makeQueue(db);
    const [first] = await deliveredDay(db, 38, 20, queue.id, 'named');
    const id = await agePending(db, await queue.enqueueOne(), 38);
    await queue.kill(id);
    await db.query(
      `INSERT INTO ${db.quoted}.retention_floors (topic, keeps_identity) VALUES ('named', true)`,
    );
    await pruneNow(db, { messagesDays: 7, attemptsDays: null });
    expect([await rowsOf('messages', 38), await rowsOf('attempts', 38)]).toEqual([1, 21]);
    const log = async (messageId = '') => {
      const { rows } = await db.query(
        `SELECT topic FROM ${db.quoted}.attempt_log WHERE message_id = $1`,
        [messageId],
      );
      return rows;
    };
    expect(await log(first)).toEqual([{ topic: 'named' }]);
    await db.query(
      `INSERT INTO ${db.quoted}.retention_floors (topic, keeps_identity) VALUES ($1, true)`,
      [queue.topic],
    );
    await pruneNow(db, kept);
    expect(await rowsOf('attempts', 38)).toBe(1);
    const { rows } = await db.query(
      `SELECT count(*)::int AS count FROM ${db.quoted}.message_identities`,
    );
    expect(rows, 'identities without attempts are gone').toEqual([{ count: 0 }]);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
    await pruneNow(db, { messagesDays: 7, attemptsDays: null });
    expect(await log(id), 'by the floor that came later').toEqual([
      { topic: queue.topic },
      { topic: queue.topic },
    ]);
    await db.query(`DELETE FROM ${db.quoted}.retention_floors WHERE keeps_identity`);
  });
});

describe('rights', () => {
  it('P5 a relay cannot thin, and the role maintenance only what has expired', async () => {
    const queue = await makeQueue(db);
    await dayWithDeadLetter(queue, 40, 20);
    const partition = await partitionOf('messages', 40);
    const call = (text: string) => `SELECT ${db.quoted}.${text}`;
    for (const [login, text] of [
      ['test_relay', `remove_partition('${partition}', '7 days', '9 days')`],
      ['test_relay', `thin_partition('${partition}')`],
      ['test_maintenance', `thin_partition('${partition}')`],
      ['test_operator', `thin_partition('${partition}')`],
    ] as const)
      await as(db, login, async (client) => {
        await expect(client.query(call(text)), `${login} ${text}`).rejects.toMatchObject({
          code: '42501',
        });
      });
    await as(db, 'test_maintenance', async (client) => {
      const { rows } = await client.query(
        call(`remove_partition('${partition}', '50 days', '50 days') AS rows`),
      );
      expect(rows, 'not expired').toEqual([{ rows: null }]);
      await expect(
        client.query(`SELECT FROM ${db.quoted}.thinned_partitions`),
      ).rejects.toMatchObject({ code: '42501' });
    });
    expect(await rowsOf('messages', 40)).toBe(21);
  });
});
