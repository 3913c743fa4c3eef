// Unused keys are forgotten, and no others: not a key in use, one with a message in the log, or one whose lane is held.
// A key that comes back starts at 1 with a new key id.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { describe, expect, it } from 'vitest';

import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue, misplaced } from '../support/outbox.js';
import type { Connection, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { oldMessage, pruneNow } from '../support/retention.js';
import { settleDelivered } from '../support/settling.js';

const db = testDatabase();

type Looked = { looked_at: number; forgotten: number };

async function forgetKeys(
  batch = 1_000_000,
  on: Connection = db.pool,
  olderThan = '30 days',
): Promise<Looked> {
  const { rows } = await on.query<Looked>(`SELECT * FROM ${db.quoted}.forget_keys($1, $2)`, [
    olderThan,
    batch,
  ]);
  return only(rows);
}

async function forgetLanes(batch = 1_000_000): Promise<Looked> {
  const { rows } = await db.query<Looked>(`SELECT * FROM ${db.quoted}.forget_lanes($1)`, [batch]);
  return only(rows);
}

async function idsOfKey(key: string): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT id FROM ${db.quoted}.keys WHERE key = $1`,
    [key],
  );
  return rows.map(({ id }) => id);
}

async function lanesOf(keyId: string): Promise<number> {
  const { rows } = await db.query(`SELECT FROM ${db.quoted}.lanes WHERE key_id = $1`, [keyId]);
  return rows.length;
}

async function delivered(queue: Queue): Promise<string[]> {
  const claim = await queue.claim();
  await settleDelivered(db, claim);
  return claim.rows.map(({ sequence, previous_sequence }) => `${previous_sequence}-${sequence}`);
}

const age = (key: string, days = 31) =>
  db.query(
    `UPDATE ${db.quoted}.keys SET last_used_at = now() - $2 * interval '1 day' WHERE key = $1`,
    [key, days],
  );

/** Makes it look as if the partitions of its messages had been dropped. */
const leaveLog = (key: string) =>
  db.query(`DELETE FROM ${db.quoted}.messages WHERE key = $1`, [key]);

/** A key of which two messages were delivered long ago. */
async function idleKey(queue: Queue): Promise<{ key: string; keyId: string }> {
  const key = `job-${randomUUID()}`;
  await queue.enqueue(2, { key });
  expect(await delivered(queue)).toEqual(['0-1', '1-2']);
  await age(key);
  await leaveLog(key);
  return { key, keyId: only(await idsOfKey(key)) };
}

describe('an unused key', () => {
  it('is forgotten with its lanes; when it comes back, it has a new key id and starts at 1', async () => {
    const queue = await makeQueue(db);
    const { key, keyId } = await idleKey(queue);
    const report = await pruneNow(db, { keysDays: 30 }, 'test_maintenance');
    expect([report['keys']?.rows, report['lanes']?.rows]).toEqual([1, 1]);
    expect([await idsOfKey(key), await lanesOf(keyId)]).toEqual([[], 0]);
    await queue.enqueue(2, { key });
    expect(await idsOfKey(key)).not.toContain(keyId);
    expect(await delivered(queue)).toEqual(['0-1', '1-2']);
  });

  it('stays if no retention is set for keys', async () => {
    const { key, keyId } = await idleKey(await makeQueue(db));
    const report = await pruneNow(db, {});
    expect(report['keys']).toBeUndefined();
    const { rows } = await db.query(`SELECT * FROM ${db.quoted}.forget_keys(NULL)`);
    expect(rows).toEqual([{ looked_at: 0, forgotten: 0 }]);
    expect([await idsOfKey(key), await lanesOf(keyId)]).toEqual([[keyId], 1]);
    await expect(forgetKeys(1, db.pool, '29 days')).rejects.toThrow(/from 30 days/);
    await forgetKeys();
    await forgetLanes();
  });

  it('stays while it was used recently: every message updates the time', async () => {
    const queue = await makeQueue(db);
    const { key, keyId } = await idleKey(queue);
    await queue.enqueue(1, { key });
    await delivered(queue);
    await leaveLog(key);
    expect(await forgetKeys()).toMatchObject({ forgotten: 0 });
    expect(await idsOfKey(key)).toEqual([keyId]);
  });

  it('stays while one of its messages is in the log, such as a dead letter that can be retried', async () => {
    const queue = await makeQueue(db);
    const key = `job-${randomUUID()}`;
    const id = await oldMessage(db, 60);
    const [first = ''] = await queue.enqueue(1, { key });
    await db.query(
      `UPDATE ${db.quoted}.messages o SET (key_id, sequence, key, topic, namespace) = (
         SELECT m.key_id, m.sequence, m.key, m.topic, m.namespace FROM ${db.quoted}.messages m WHERE m.id = $2) WHERE o.id = $1`,
      [id, first],
    );
    await db.query(`UPDATE ${db.quoted}.deliveries SET message_id = $1 WHERE message_id = $2`, [
      id,
      first,
    ]);
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [first]);
    await queue.kill(id);
    await age(key, 60);
    const keyId = only(await idsOfKey(key));
    expect((await pruneNow(db, { keysDays: 30 }))['keys']).toMatchObject({ rows: 0 });
    expect([await idsOfKey(key), await lanesOf(keyId)]).toEqual([[keyId], 1]);
    await db.query(`SELECT ${db.quoted}.retry_dead_letters(destination => $1)`, [queue.name]);
    expect(await delivered(queue)).toEqual(['null-1']);
  });

  it('each call looks at the next slice of the keys, and a slice that is not full ends the pass', async () => {
    await forgetKeys();
    await db.query(`DELETE FROM ${db.quoted}.keys`);
    const queue = await makeQueue(db);
    const keys: string[] = [];
    for (let n = 0; n < 5; n += 1) keys.push((await idleKey(queue)).key);
    await age(keys[0] ?? '', 1);
    expect(await forgetKeys(2)).toEqual({ looked_at: 2, forgotten: 1 });
    await age(keys[0] ?? '');
    expect(await forgetKeys(2), 'not from the beginning').toEqual({ looked_at: 2, forgotten: 2 });
    expect(await forgetKeys(2)).toEqual({ looked_at: 1, forgotten: 1 });
    expect(await forgetKeys(2), 'from the beginning').toEqual({ looked_at: 1, forgotten: 1 });
    let lanes = 0;
    for (let slice = { looked_at: 2, forgotten: 0 }; slice.looked_at === 2;) {
      slice = await forgetLanes(2);
      lanes += slice.forgotten;
    }
    expect(lanes).toBeGreaterThanOrEqual(5);
    expect(await forgetLanes()).toMatchObject({ forgotten: 0 });
  });

  it('of two concurrent calls the second finds nothing to do and does not wait', async () => {
    await idleKey(await makeQueue(db));
    await db.inTransaction(async (client) => {
      expect((await forgetKeys(1000, client)).forgotten).toBe(1);
      expect(await forgetKeys()).toEqual({ looked_at: 0, forgotten: 0 });
    });
  });

  it('no index of the table keys contains a column that producers update, so updates are heap-only', async () => {
    const { rows } = await db.query(
      `SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = '${db.quoted}.keys'::regclass AND a.attname IN ('next_sequence', 'last_used_at')`,
    );
    expect(rows).toEqual([]);
  });
});

describe('a producer at the same moment', () => {
  it('that has taken a number keeps its key', async () => {
    const queue = await makeQueue(db);
    const { key, keyId } = await idleKey(queue);
    await db.inTransaction(async (client) => {
      await enqueueMany(db, client, [{ topic: queue.topic, key }]);
      expect((await forgetKeys()).forgotten).toBe(0);
    });
    expect(await idsOfKey(key)).toEqual([keyId]);
    expect(await delivered(queue)).toEqual(['2-3']);
  });

  it.each(['READ COMMITTED', 'REPEATABLE READ'])(
    'that comes while its key is being forgotten gets a new key id, in %s',
    async (isolation) => {
      const queue = await makeQueue(db);
      const { key, keyId } = await idleKey(queue);
      const producer = await db.connect();
      await producer.query(`BEGIN ISOLATION LEVEL ${isolation}`);
      const waiter = await backendId(producer);
      await producer.query(`SELECT count(*) FROM ${db.quoted}.keys`);
      let enqueued: Promise<{ sequence: string | null }[]> | undefined;
      await db.inTransaction(async (client) => {
        expect((await forgetKeys(1_000_000, client)).forgotten).toBe(1);
        enqueued = enqueueMany(db, producer, [{ topic: queue.topic, key }]);
        await waitUntilBlocked(db, waiter);
      });
      expect(await enqueued).toMatchObject([{ sequence: '1' }]);
      await producer.query('COMMIT');
      expect(await idsOfKey(key)).not.toContain(keyId);
      await forgetLanes();
      expect(await delivered(queue)).toEqual(['0-1']);
    },
  );

  it('the sequences of a key id have no gaps and no duplicates while many producers write and keys are forgotten', async () => {
    const queue = await makeQueue(db);
    const keys = Array.from({ length: 8 }, (_, n) => `${n}-${randomUUID()}`);
    const taken = new Map<string, number[]>();
    const arrived = new Map<string, number[]>();
    type Numbered = { key_id: string | null; sequence: string | null };
    const note = (where: Map<string, number[]>, rows: Numbered[]) => {
      for (const { key_id, sequence } of rows) {
        const keyId = key_id ?? '';
        where.set(keyId, [...(where.get(keyId) ?? []), Number(sequence)]);
      }
    };
    const progress = { forgotten: 0 };
    const produce = async (client: pg.Client, isolation: string) => {
      for (let n = 0; progress.forgotten < 25; n += 1) {
        await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
        try {
          const some = [keys[n % 8] ?? '', keys[(n * 3 + 1) % 8] ?? ''];
          const messages = some.map((key) => ({ topic: queue.topic, key }));
          const rows = await enqueueMany(db, client, messages);
          const { rows: made } = await client.query<Numbered>(
            `SELECT key_id, sequence FROM ${db.quoted}.messages WHERE id = ANY ($1)`,
            [rows.map(({ id }) => id)],
          );
          await client.query(n % 7 === 3 ? 'ROLLBACK' : 'COMMIT');
          if (n % 7 !== 3) note(taken, made);
        } catch (error) {
          await client.query('ROLLBACK');
          if ((error as { code?: string }).code !== '40001') throw error;
        }
      }
    };
    const deliver = async () => {
      const claim = await queue.claim();
      note(arrived, claim.rows);
      await settleDelivered(db, claim);
      return claim.ids;
    };
    const forget = async () => {
      while (progress.forgotten < 25) {
        await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = ANY ($1)`, [await deliver()]);
        await db.query(
          `UPDATE ${db.quoted}.keys SET last_used_at = '2020-01-01' WHERE id IN (
             SELECT id FROM ${db.quoted}.keys WHERE key = ANY ($1) FOR UPDATE SKIP LOCKED)`,
          [keys],
        );
        const { forgotten } = await forgetKeys();
        progress.forgotten += forgotten;
        await forgetLanes();
      }
    };
    const clients = await Promise.all([1, 2].map(() => db.connect()));
    await Promise.all([
      forget(),
      ...clients.map((client, n) =>
        produce(client, n === 0 ? 'READ COMMITTED' : 'REPEATABLE READ'),
      ),
    ]);
    while ((await deliver()).length > 0);
    expect(taken.size, 'key ids').toBeGreaterThan(25);
    const sorted = (numbers: number[] = []) => numbers.toSorted((a, b) => a - b);
    for (const [keyId, numbers] of taken) {
      expect(sorted(numbers), `of key id ${keyId}`).toEqual(numbers.map((_, n) => n + 1));
      expect(arrived.get(keyId), `of key id ${keyId}`).toEqual(sorted(numbers));
    }
    expect(await queue.waiting()).toEqual([]);
  });
});

describe('the lane of a forgotten key', () => {
  const deleteKey = (key: string) =>
    db.query(`DELETE FROM ${db.quoted}.keys WHERE key = $1`, [key]);

  it.each(['lease_id', 'blocked_by', 'available_at'])('stays while %s is set', async (column) => {
    const { key, keyId } = await idleKey(await makeQueue(db));
    await deleteKey(key);
    const value = column === 'available_at' ? 'now()' : 'gen_random_uuid()';
    const set = (to: string) =>
      db.query(`UPDATE ${db.quoted}.lanes SET ${column} = ${to} WHERE key_id = $1`, [keyId]);
    await set(value);
    await forgetLanes();
    expect(await lanesOf(keyId)).toBe(1);
    await set('NULL');
    await forgetLanes();
    expect(await lanesOf(keyId)).toBe(0);
  });

  it('stays while deliveries are pending in it, while it is locked, and while the key exists', async () => {
    const queue = await makeQueue(db);
    const { key, keyId } = await idleKey(queue);
    await forgetLanes();
    expect(await lanesOf(keyId), 'the key exists').toBe(1);
    await queue.enqueue(1, { key });
    await deleteKey(key);
    await forgetLanes();
    expect(await lanesOf(keyId), 'a delivery is pending').toBe(1);
    expect(await delivered(queue)).toEqual(['2-3']);
    await db.inTransaction(async (client) => {
      await client.query(`SELECT FROM ${db.quoted}.lanes WHERE key_id = $1 FOR UPDATE`, [keyId]);
      await forgetLanes();
    });
    expect(await lanesOf(keyId), 'it is locked').toBe(1);
    await forgetLanes();
    expect(await lanesOf(keyId)).toBe(0);
  });

  it('pending deliveries are delivered without it, and an empty ticket is removed by the next claim', async () => {
    const queue = await makeQueue(db);
    const key = `job-${randomUUID()}`;
    const [id = ''] = await queue.enqueue(1, { key });
    await deleteKey(key);
    expect(await delivered(queue)).toEqual(['0-1']);
    const [other = ''] = await queue.enqueue(1, { key });
    await db.query(`SELECT ${db.quoted}.cancel($1)`, [other]);
    await deleteKey(key);
    expect(await delivered(queue)).toEqual([]);
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.lane_tickets WHERE destination_id = $1`,
      [queue.id],
    );
    expect(rows).toEqual([]);
    expect(
      (await misplaced(db)).filter(({ message_id }) => [id, other].includes(message_id as string)),
    ).toEqual([]);
  });
});
