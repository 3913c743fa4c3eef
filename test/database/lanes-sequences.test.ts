// The sequence of a key: from 1 without a gap, in commit order, whichever producers write and whatever is rolled back.

import { describe, expect, it } from 'vitest';

import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import { releaseLease, settle } from '../support/settling.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

/** Of committed messages, in the order of their sequence. */
async function sequences(queue: Queue, key: string): Promise<number[]> {
  const { rows } = await db.query<{ sequence: number }>(
    `SELECT sequence::int FROM ${db.quoted}.messages WHERE topic = $1 AND key = $2 ORDER BY sequence`,
    [queue.topic, key],
  );
  return rows.map((row) => row.sequence);
}

const upTo = (count: number) => Array.from({ length: count }, (_, n) => n + 1);

describe('numbers', () => {
  it('P2 are 1, 2, 3 … for each key of each tenant and namespace, and null without a key', async () => {
    const queue = await makeQueue(db);
    const { topic } = queue;
    const rows = await enqueueMany(db, db.pool, [
      { topic, key: 'a' },
      { topic },
      { topic, key: 'b' },
      { topic, key: 'a' },
      { topic, key: 'a', tenantId: 't' },
      { topic, key: 'a', namespace: 'other' },
      { topic, key: 'a' },
    ]);
    expect(rows.map((row) => row.sequence)).toEqual(['1', null, '1', '2', '1', '1', '3']);
  });

  it('P2 leave no gap behind a rollback, nor behind a savepoint that was rolled back', async () => {
    const queue = await makeQueue(db);
    const message = { topic: queue.topic, key: 'undone' };
    const client = await db.connect();
    await client.query('BEGIN');
    await enqueueMany(db, client, [message, message]);
    await client.query('ROLLBACK');
    await client.query('BEGIN');
    await enqueueMany(db, client, [message]);
    await client.query('SAVEPOINT s');
    await enqueueMany(db, client, [message, message]);
    await client.query('ROLLBACK TO SAVEPOINT s');
    expect(only(await enqueueMany(db, client, [message])).sequence).toBe('2');
    await client.query('COMMIT');
    expect(await sequences(queue, 'undone')).toEqual([1, 2]);
  });

  it('P2 have no gaps with 8 producers that roll back every third time', async () => {
    const queue = await makeQueue(db);
    const produce = async (producer: number) => {
      const client = await db.connect();
      for (let n = 0; n < 15; n += 1) {
        await client.query('BEGIN');
        await enqueueMany(db, client, [
          { topic: queue.topic, key: 'busy' },
          { topic: queue.topic, key: `own-${producer}` },
          { topic: queue.topic, key: 'busy' },
        ]);
        await client.query(n % 3 === 2 ? 'ROLLBACK' : 'COMMIT');
      }
      await client.end();
    };
    await Promise.all(upTo(8).map(produce));
    expect(await sequences(queue, 'busy')).toEqual(upTo(8 * 10 * 2));
    for (const producer of upTo(8))
      expect(await sequences(queue, `own-${producer}`)).toEqual(upTo(10));
  });

  it('P2 make the second producer of a key wait for the first, and use its number if it rolls back', async () => {
    const queue = await makeQueue(db);
    const message = { topic: queue.topic, key: 'contested' };
    const [first, second] = [await db.connect(), await db.connect()];
    const waiter = await backendId(second);
    for (const [end, expected] of [
      ['ROLLBACK', '1'],
      ['COMMIT', '3'],
    ] as const) {
      await first.query('BEGIN');
      await enqueueMany(db, first, [message]);
      const waiting = enqueueMany(db, second, [message]);
      await waitUntilBlocked(db, waiter);
      await first.query(end);
      expect(only(await waiting).sequence, end).toBe(expected);
    }
  });

  it('P2 have ids in the same order, also for a producer that had to wait', async () => {
    const queue = await makeQueue(db);
    const message = { topic: queue.topic, key: 'ids' };
    const [first, second] = [await db.connect(), await db.connect()];
    const waiter = await backendId(second);
    await first.query('BEGIN');
    await enqueueMany(db, first, [message]);
    const waiting = enqueueMany(db, second, [message, message]);
    await waitUntilBlocked(db, waiter);
    await enqueueMany(db, first, [message]);
    await first.query('COMMIT');
    await waiting;
    const { rows } = await db.query<{ sequence: string }>(
      `SELECT sequence FROM ${db.quoted}.messages WHERE topic = $1 ORDER BY id`,
      [queue.topic],
    );
    expect(rows.map((row) => row.sequence)).toEqual(['1', '2', '3', '4']);
  });

  it('P2 M3 a duplicate uses no number, and returns that of the first', async () => {
    const queue = await makeQueue(db);
    const message = { topic: queue.topic, key: 'twice', dedupeKey: 'once' };
    const other = { topic: queue.topic, key: 'twice' };
    const first = await enqueueMany(db, db.pool, [other, message, message, other]);
    expect(first.map((row) => [row.sequence, row.duplicate])).toEqual([
      ['1', false],
      ['2', false],
      ['2', true],
      ['3', false],
    ]);
    const again = await enqueueMany(db, db.pool, [message, other]);
    expect(again.map((row) => [row.sequence, row.duplicate])).toEqual([
      ['2', true],
      ['4', false],
    ]);
    expect(again[0]?.id).toBe(first[1]?.id);
    expect(await sequences(queue, 'twice')).toEqual([1, 2, 3, 4]);
  });

  it('P2 batches of the same keys in opposite order never deadlock', async () => {
    const queue = await makeQueue(db);
    const keys = upTo(40).map((n) => `k${n}`);
    const produce = async (producer: number) => {
      const client = await db.connect();
      for (let n = 0; n < 20; n += 1) {
        const order = producer % 2 === 0 ? keys : keys.toReversed();
        const messages = order.map((key) => ({
          topic: queue.topic,
          key,
          ...(producer < 2 ? {} : { dedupeKey: `${key}-${n}` }),
        }));
        await enqueueMany(db, client, messages);
      }
      await client.end();
    };
    await Promise.all([0, 1, 2, 3].map(produce));
    // two producers write everything, and two others write each message once
    for (const key of keys) expect(await sequences(queue, key)).toEqual(upTo(60));
  });

  it('P2 a producer under stricter isolation gets a serialization failure instead of a number twice', async () => {
    const queue = await makeQueue(db);
    const message = { topic: queue.topic, key: 'strict' };
    const strict = await db.connect();
    for (const level of ['REPEATABLE READ', 'SERIALIZABLE']) {
      await enqueueMany(db, db.pool, [message]);
      await strict.query(`BEGIN ISOLATION LEVEL ${level}`);
      await strict.query('SELECT 1');
      await strict.query(`SELECT count(*) FROM ${db.quoted}.keys`);
      await enqueueMany(db, db.pool, [message]);
      await expect(enqueueMany(db, strict, [message])).rejects.toMatchObject({ code: '40001' });
      await strict.query('ROLLBACK');
      await strict.query(`BEGIN ISOLATION LEVEL ${level}`);
      await enqueueMany(db, strict, [message]);
      await strict.query('COMMIT');
    }
    expect(await sequences(queue, 'strict')).toEqual(upTo(6));
  });

  it('P2 are kept by retries, releases and requeues', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 0, retryMaxMs: 0 });
    const [id = ''] = await queue.enqueue(1, { key: 'kept' });
    const claims: (string | null)[] = [];
    for (const outcome of ['retry', 'release'] as const) {
      const claim = await queue.claimOne();
      claims.push(claim.row.sequence);
      if (outcome === 'release') await releaseLease(db, claim);
      else await settle(db, claim, [{ id, outcome, errorCode: 'x' }]);
    }
    claims.push((await queue.claimOne()).row.sequence);
    expect(claims).toEqual(['1', '1', '1']);
  });
});
