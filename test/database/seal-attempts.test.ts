// Sealing: every row is in exactly one seal range, whichever transactions commit late or seal at the same time. Rows
// that retention removes are sealed first, and their removal is recorded.

import { describe, expect, it } from 'vitest';

import {
  deliver,
  readSealRows,
  sealActions,
  sealNow,
  searchNow,
  tamper,
  verify,
} from '../support/audit.js';
import { defineDestination } from '../support/destinations.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { oldMessage, partitionDays, pruneNow } from '../support/retention.js';
import { settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

async function sealedRows(): Promise<number> {
  return (await readSealRows(db))
    .filter(({ kind }) => kind === 'attempts')
    .reduce((sum, { row_count }) => sum + row_count, 0);
}

async function countAttempts(): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.attempts`,
  );
  return only(rows).count;
}

describe('seal ranges', () => {
  it('W8 attempts are sealed in ranges of a bounded number of rows, each row in one of them', async () => {
    const queue = await makeQueue(db);
    await deliver(queue, 45);
    await sealNow(db, 20);
    const counts = (await readSealRows(db)).filter(({ kind }) => kind === 'attempts');
    expect(counts.map(({ row_count }) => row_count).filter((count) => count > 0)).toEqual([
      20, 20, 5,
    ]);
    expect(await verify(db)).toMatchObject({ intact: true, findings: [], provenTo: null });
    expect(await sealedRows()).toBe(await countAttempts());
  });

  it('W8 all attempts of one message are in one range, even if they exceed its size', async () => {
    const queue = await makeQueue(db, { maxAttempts: 100 });
    const id = await queue.enqueueOne();
    for (let n = 0; n < 5; n += 1) {
      await settle(db, await queue.claim(), [{ id, outcome: 'retry', retryAfterMs: 0 }]);
    }
    await sealNow(db, 2);
    expect((await readSealRows(db)).map(({ row_count }) => row_count)).toContain(5);
    expect(await verify(db)).toMatchObject({ intact: true });
  });

  it('W8 a range that is not full waits until it is old enough', async () => {
    const queue = await makeQueue(db);
    await sealNow(db);
    const before = await readSealRows(db);
    await deliver(queue, 3);
    const { rows } = await db.query(
      `SELECT ${db.quoted}.seal_attempts(10000, '0', '1 hour') AS count`,
    );
    expect(only(rows)).toEqual({ count: null });
    expect(await readSealRows(db)).toEqual(before);
    await sealNow(db);
    expect((await readSealRows(db)).at(-1)).toMatchObject({ row_count: 3 });
  });

  it('W8 rows younger than the delay are left for later', async () => {
    const queue = await makeQueue(db);
    await sealNow(db);
    await deliver(queue, 2);
    const before = await sealedRows();
    await db.query(`SELECT ${db.quoted}.seal_attempts(10000, '1 hour', '0')`);
    expect(await sealedRows()).toBe(before);
  });

  it('W8 of two concurrent sealers one makes the chain, and the other skips', async () => {
    const queue = await makeQueue(db);
    await deliver(queue, 30);
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.seal_attempts(10, '0', '0')`);
    const { rows } = await db.query(`SELECT ${db.quoted}.seal_attempts(10, '0', '0') AS count`);
    expect(only(rows), 'no wait').toEqual({ count: null });
    await client.query('COMMIT');
    await Promise.all([sealNow(db, 5), sealNow(db, 5), sealNow(db, 5)]);
    const numbers = (await readSealRows(db)).map(({ number }) => number);
    expect(numbers).toEqual(numbers.map((_number, index) => index + 1));
    expect(await verify(db)).toMatchObject({ intact: true });
    expect(await sealedRows()).toBe(await countAttempts());
  });

  it('W8 sealing is refused in a transaction that keeps its snapshot', async () => {
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await expect(client.query(`SELECT ${db.quoted}.seal_attempts()`)).rejects.toMatchObject({
      code: '25001',
    });
    await client.query('ROLLBACK');
  });
});

describe('late rows', () => {
  it('W8 an uncommitted transaction with ended attempts holds back the seal, and its rows are not missed', async () => {
    const queue = await makeQueue(db);
    await sealNow(db);
    const client = await db.connect();
    await queue.enqueue(4);
    const claim = await queue.claim();
    await client.query('BEGIN');
    await settleDelivered(db, claim, client);
    await deliver(queue, 6);
    const before = await sealedRows();
    for (let step = 0; step < 4; step += 1)
      await db.query(`SELECT ${db.quoted}.seal_attempts(10000, '0', '0')`);
    // attempts that ended before the transaction read the clock may be sealed, none after
    const { rows } = await db.query<{ early: boolean }>(
      `SELECT max(until) FILTER (WHERE until < 'infinity') <= (SELECT min(xact_start) + interval '1 second' FROM pg_stat_activity WHERE state = 'idle in transaction') AS early
         FROM ${db.quoted}.seals WHERE kind = 'attempts'`,
    );
    expect(only(rows).early).toBe(true);
    await client.query('COMMIT');
    await sealNow(db);
    await searchNow(db);
    expect(await verify(db)).toMatchObject({ intact: true });
    expect(await sealedRows(), 'including those of the late one').toBe(before + 10);
    expect(await sealedRows()).toBe(await countAttempts());
  });

  it('W8 a lease holder may have read the clock already, and is awaited before anything is inserted', async () => {
    const queue = await makeQueue(db);
    await sealNow(db);
    await queue.enqueue(2);
    const claim = await queue.claim();
    const client = await db.connect();
    await client.query('BEGIN');
    // as a settle does it: the lease, the clock, then the attempts
    await client.query(`SELECT FROM ${db.quoted}.leases WHERE id = $1 FOR UPDATE`, [claim.leaseId]);
    const { rows } = await client.query<{ now: string }>('SELECT clock_timestamp()::text AS now');
    for (let step = 0; step < 4; step += 1)
      await db.query(`SELECT ${db.quoted}.seal_attempts(10000, '0', '0')`);
    for (const id of claim.ids) {
      await client.query(
        `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
         VALUES ($1, $2, 1, 1, 'dispatched', $3)`,
        [id, queue.id, only(rows).now],
      );
    }
    await client.query('COMMIT');
    await sealNow(db);
    await searchNow(db);
    expect((await verify(db)).findings).toEqual([]);
    expect(await sealedRows()).toBe(await countAttempts());
  });

  it('W8 consecutive transactions without a pause do not stop the sealing', async () => {
    const closed = async () => {
      const { rows } = await db.query<{ until: string }>(
        `SELECT extract(epoch FROM ${db.quoted}.close_rows('attempts', ARRAY['${db.quoted}.leases'::regclass]))::text AS until`,
      );
      return Number(only(rows).until);
    };
    const [one, two] = [await db.connect(), await db.connect()];
    const write = async (client: typeof one) => {
      await client.query('BEGIN');
      await client.query(`LOCK TABLE ${db.quoted}.leases IN ROW SHARE MODE`);
    };
    await write(one);
    const first = await closed();
    expect(await closed(), 'the first one is awaited').toBe(first);
    await write(two);
    expect(await closed()).toBe(first);
    await one.query('COMMIT');
    const second = await closed();
    expect(second, 'and not those that began later').toBeGreaterThan(first);
    expect(await closed()).toBe(second);
    await two.query('COMMIT');
    expect(await closed()).toBeGreaterThan(second);
  });

  it('W8 an action that commits late is not missed either', async () => {
    await sealActions(db);
    const queue = await makeQueue(db);
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.set_paused($1, true, 'late')`, [queue.name]);
    const other = await makeQueue(db);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'early')`, [other.name]);
    await sealActions(db);
    await sealActions(db);
    await client.query('COMMIT');
    await sealActions(db);
    const { rows } = await db.query<{ sealed: number; all: number }>(
      `SELECT (SELECT sum(row_count)::int FROM ${db.quoted}.seals WHERE kind = 'actions') AS sealed,
              (SELECT count(*)::int FROM ${db.quoted}.operator_actions) AS all`,
    );
    expect(only(rows).sealed).toBe(only(rows).all);
    expect(await verify(db)).toMatchObject({ intact: true });
  });

  it('W8 attempts that end after their message was sealed are found and sealed, and do no harm until then', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await settle(db, await queue.claim(), [{ id, outcome: 'retry', retryAfterMs: 0 }]);
    await sealNow(db);
    await settleDelivered(db, await queue.claim());
    expect(await verify(db), 'not sealed yet').toMatchObject({ intact: true });
    expect(await searchNow(db)).toBe(1);
    expect(await verify(db)).toMatchObject({ intact: true });
    await tamper(
      db,
      `UPDATE ${db.quoted}.attempts SET reference = 'forged' WHERE message_id = '${id}' AND claim_no = 2`,
    );
    expect((await verify(db)).findings).toMatchObject([{ kind: 'edited' }]);
    await tamper(
      db,
      `UPDATE ${db.quoted}.attempts SET reference = NULL WHERE message_id = '${id}' AND claim_no = 2`,
    );
    expect(await verify(db)).toMatchObject({ intact: true });
  });

  it('W8 a day without late rows is no longer searched, and a day with late rows is', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await settle(db, await queue.claim(), [{ id, outcome: 'retry', retryAfterMs: 0 }]);
    await sealNow(db);
    const search = async () => {
      await db.query(
        `UPDATE ${db.quoted}.seal_days SET searched_at = clock_timestamp() - interval '1 hour'`,
      );
      const { rows } = await db.query<{ count: number | null }>(
        `SELECT ${db.quoted}.seal_attempts(10000, '0', '1 hour')::int AS count`,
      );
      return only(rows).count;
    };
    const client = await db.connect();
    const settled = async () => {
      await client.query('SELECT pg_stat_force_next_flush()');
      for (let n = 0; n < 20; n += 1) if ((await search()) === null) return;
      throw new Error('the search never ends');
    };
    await settled();
    expect(await search(), 'quiet').toBe(null);
    const claim = await queue.claim({ on: client });
    await client.query('SELECT pg_stat_force_next_flush()');
    await settleDelivered(db, claim, client);
    await client.query('SELECT pg_stat_force_next_flush()');
    const found: (number | null)[] = [];
    for (let n = 0; n < 3; n += 1) found.push(await search());
    expect(found).toContain(1);
  });
});

describe('retention', () => {
  /** An attempt for a message of some days ago, which ended then or later. */
  const ended = async (daysAgo: number, endedDaysAgo = daysAgo) => {
    const destinationId = await defineDestination(db, 'expiring');
    const id = await oldMessage(db, daysAgo);
    await db.query(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       VALUES ($1, $2, 1, 1, 'dispatched', now() - $3::int * interval '1 day')`,
      [id, destinationId, endedDaysAgo],
    );
    return id;
  };

  const expiryOf = async (messageId: string) => {
    const { rows } = await db.query(
      `SELECT row_count::int, details ->> 'keptDays' AS kept FROM ${db.quoted}.seals s
        WHERE kind = 'expired' AND $1::uuid >= from_id AND $1::uuid < to_id`,
      [messageId],
    );
    return rows;
  };

  it.each([
    ['a login that owns nothing', 'test_maintenance', 13, 4],
    ['the owner', undefined, 12, 5],
  ] as const)(
    'W8 C9 an expired day is sealed to its end, recorded and dropped by %s, and the rest verifies',
    async (_who, login, day, later) => {
      await ended(day);
      await ended(later);
      await sealNow(db);
      // comes late, and is not sealed when its day expires
      const late = await ended(day, 0);
      await pruneNow(db, { messagesDays: 7, attemptsDays: 9 }, login);
      expect(await partitionDays(db, 'attempts')).not.toContain(day);
      const report = await verify(db);
      expect(report).toMatchObject({ intact: true, findings: [], keptDays: 9 });
      expect(report.expired).toBeGreaterThanOrEqual(2);
      expect(await expiryOf(late)).toEqual([{ row_count: 2, kept: '9' }]);

      const strict = await verify(db, { attemptsDays: 30 });
      expect(strict.findings.map(({ kind }) => kind)).toContain('deleted');
      expect(strict.findings[0]?.sentence).toContain('removed after 9 days instead of 30');
    },
  );

  it('W8 P5 a day that is not sealed to its end is not removed', async () => {
    const id = await ended(14);
    await sealNow(db);
    await pruneNow(db, { messagesDays: 7, attemptsDays: null });
    const { rows } = await db.query<{ partition: string; day: string }>(
      `SELECT partition, day::text FROM ${db.quoted}.expired_partitions('7 days', '9 days')
        WHERE statement IS NOT NULL AND partition LIKE 'attempts%'`,
    );
    const { partition, day } = only(rows);
    await as(db, 'test_maintenance', async (client) => {
      const remove = () =>
        client.query(`SELECT ${db.quoted}.remove_partition($1, '7 days', '9 days') AS rows`, [
          partition,
        ]);
      await expect(remove()).rejects.toMatchObject({
        code: '55P03',
        message: `${partition} is not sealed to its end`,
      });
      expect(await partitionDays(db, 'attempts')).toContain(14);
      const seal = await client.query(`SELECT ${db.quoted}.seal_expiry($1, 9) AS done`, [day]);
      expect(seal.rows).toEqual([{ done: true }]);
      expect((await remove()).rows).toEqual([{ rows: '1' }]);
    });
    expect(await expiryOf(id)).toEqual([{ row_count: 1, kept: '9' }]);
    expect(await verify(db)).toMatchObject({ intact: true });
  });

  it('W8 P5 days that the owner keeps longer than configured are recorded with that time', async () => {
    await db.query(`UPDATE ${db.quoted}.retention_floors SET attempts_days = 20`);
    const [gone, stays] = [await ended(21), await ended(15)];
    await sealNow(db);
    await pruneNow(db, { messagesDays: 7, attemptsDays: 9 }, 'test_maintenance');
    expect(await expiryOf(gone)).toEqual([{ row_count: 1, kept: '20' }]);
    expect(await expiryOf(stays)).toEqual([]);
    expect(await partitionDays(db, 'attempts')).toContain(15);
    await as(db, 'test_maintenance', async (client) => {
      await expect(
        client.query(`SELECT ${db.quoted}.seal_expiry((now() AT TIME ZONE 'UTC')::date - 15, 9)`),
      ).rejects.toMatchObject({ code: '22023' });
    });
    await db.query(`UPDATE ${db.quoted}.retention_floors SET attempts_days = 1`);
    expect(await verify(db)).toMatchObject({ intact: true });
  });

  it('W8 a day that is dropped before it expired is reported as missing', async () => {
    const { rows } = await db.query<{ partition: string; bound: string }>(
      `SELECT c.relname AS partition, pg_get_expr(c.relpartbound, c.oid) AS bound FROM ${db.quoted}.partition_bounds($1::regclass) b
         JOIN pg_class c ON c.oid = b.partition WHERE b.day = (now() AT TIME ZONE 'UTC')::date - 5`,
      [`${db.quoted}.attempts`],
    );
    const { partition, bound } = only(rows);
    await db.query(`ALTER TABLE ${db.quoted}.attempts DETACH PARTITION ${db.quoted}.${partition}`);
    const { findings } = await verify(db);
    expect(findings).toMatchObject([{ kind: 'deleted', sentence: 'it had 1 rows and has 0' }]);
    expect(only(findings).range).toContain('attempts of messages');
    await db.query(
      `ALTER TABLE ${db.quoted}.attempts ATTACH PARTITION ${db.quoted}.${partition} ${bound}`,
    );
    expect(await verify(db)).toMatchObject({ intact: true });
  });

  it('W8 P5 an expiry is not recorded while the messages of the day exist, because they may be replayed', async () => {
    const id = await ended(18);
    await sealNow(db);
    const { rows } = await as(db, 'test_maintenance', (client) =>
      client.query(`SELECT ${db.quoted}.seal_expiry((now() AT TIME ZONE 'UTC')::date - 18, 9)`),
    );
    expect(rows).toHaveLength(1);
    expect(await expiryOf(id)).toEqual([]);
    expect(await partitionDays(db, 'attempts')).toContain(18);
    await pruneNow(db, { messagesDays: 7, attemptsDays: 9 }, 'test_maintenance');
    expect(await expiryOf(id)).toEqual([{ row_count: 1, kept: '9' }]);
    expect(await verify(db)).toMatchObject({ intact: true });
  });

  it('W8 an expiry cannot be recorded before its time', async () => {
    await expect(
      db.query(`SELECT ${db.quoted}.seal_expiry(current_date - 5, 9)`),
    ).rejects.toMatchObject({ code: '22023' });
  });
});
