// Keys that are used no more are forgotten, and nothing else: not one that somebody uses at that moment, of which a
// message is in the log, or whose lane anybody holds. One that comes back begins at 1, as another stream.

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

async function streamsOf(key: string): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT id FROM ${db.quoted}.streams WHERE key = $1`,
    [key],
  );
  return rows.map(({ id }) => id);
}

async function lanesOf(streamId: string): Promise<number> {
  const { rows } = await db.query(`SELECT FROM ${db.quoted}.lanes WHERE stream_id = $1`, [
    streamId,
  ]);
  return rows.length;
}

async function delivered(queue: Queue): Promise<string[]> {
  const claim = await queue.claim();
  await settleDelivered(db, claim);
  return claim.rows.map(({ sequence, previous_sequence }) => `${previous_sequence}-${sequence}`);
}

const age = (key: string, days = 31) =>
  db.query(
    `UPDATE ${db.quoted}.streams SET last_used_at = now() - $2 * interval '1 day' WHERE key = $1`,
    [key, days],
  );

/** As when the days of its messages have been dropped. */
const leaveLog = (key: string) =>
  db.query(`DELETE FROM ${db.quoted}.messages WHERE key = $1`, [key]);

/** A key of which two messages were delivered, long ago. */
async function idleKey(queue: Queue): Promise<{ key: string; streamId: string }> {
  const key = `job-${randomUUID()}`;
  await queue.enqueue(2, { key });
  expect(await delivered(queue)).toEqual(['0-1', '1-2']);
  await age(key);
  await leaveLog(key);
  return { key, streamId: only(await streamsOf(key)) };
}

describe('a key that is used no more', () => {
  it('is forgotten with its lanes; when it comes back, it is another stream and begins at 1', async () => {
    const queue = await makeQueue(db);
    const { key, streamId } = await idleKey(queue);
    const report = await pruneNow(db, { keysDays: 30 }, 'test_relay');
    expect([report['keys']?.rows, report['lanes']?.rows]).toEqual([1, 1]);
    expect([await streamsOf(key), await lanesOf(streamId)]).toEqual([[], 0]);
    await queue.enqueue(2, { key });
    expect(await streamsOf(key)).not.toContain(streamId);
    expect(await delivered(queue)).toEqual(['0-1', '1-2']);
  });

  it('stays where no retention is set for keys', async () => {
    const { key, streamId } = await idleKey(await makeQueue(db));
    const report = await pruneNow(db, {});
    expect(report['keys']).toBeUndefined();
    const { rows } = await db.query(`SELECT * FROM ${db.quoted}.forget_keys(NULL)`);
    expect(rows).toEqual([{ looked_at: 0, forgotten: 0 }]);
    expect([await streamsOf(key), await lanesOf(streamId)]).toEqual([[streamId], 1]);
    await expect(forgetKeys(1, db.pool, '29 days')).rejects.toThrow(/from 30 days/);
    await forgetKeys();
    await forgetLanes();
  });

  it('stays while it was used of late: every message says when', async () => {
    const queue = await makeQueue(db);
    const { key, streamId } = await idleKey(queue);
    await queue.enqueue(1, { key });
    await delivered(queue);
    await leaveLog(key);
    expect(await forgetKeys()).toMatchObject({ forgotten: 0 });
    expect(await streamsOf(key)).toEqual([streamId]);
  });

  it('stays while one of its messages is in the log, as that of a dead letter is, which can be sent again', async () => {
    const queue = await makeQueue(db);
    const key = `job-${randomUUID()}`;
    const id = await oldMessage(db, 60);
    const [first = ''] = await queue.enqueue(1, { key });
    await db.query(
      `UPDATE ${db.quoted}.messages o SET (stream_id, sequence, key, topic, namespace) = (
         SELECT m.stream_id, m.sequence, m.key, m.topic, m.namespace FROM ${db.quoted}.messages m WHERE m.id = $2) WHERE o.id = $1`,
      [id, first],
    );
    await db.query(`UPDATE ${db.quoted}.deliveries SET message_id = $1 WHERE message_id = $2`, [
      id,
      first,
    ]);
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [first]);
    await queue.kill(id);
    await age(key, 60);
    const streamId = only(await streamsOf(key));
    expect((await pruneNow(db, { keysDays: 30 }))['keys']).toMatchObject({ rows: 0 });
    expect([await streamsOf(key), await lanesOf(streamId)]).toEqual([[streamId], 1]);
    await db.query(`SELECT ${db.quoted}.retry_dead_letters(destination => $1)`, [queue.name]);
    expect(await delivered(queue)).toEqual(['null-1']);
  });

  it('slices follow each other over calls, and a lap ends with a slice that is not full', async () => {
    await forgetKeys();
    await db.query(`DELETE FROM ${db.quoted}.streams`);
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

  it('two at once: the second finds nothing to do and waits for nobody', async () => {
    await idleKey(await makeQueue(db));
    await db.inTransaction(async (client) => {
      expect((await forgetKeys(1000, client)).forgotten).toBe(1);
      expect(await forgetKeys()).toEqual({ looked_at: 0, forgotten: 0 });
    });
  });

  it('updates of streams stay within the page', async () => {
    const { rows } = await db.query(
      `SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = '${db.quoted}.streams'::regclass AND a.attname IN ('next_sequence', 'last_used_at')`,
    );
    expect(rows).toEqual([]);
  });
});

describe('a producer at the same moment', () => {
  it('that has taken a number keeps its key', async () => {
    const queue = await makeQueue(db);
    const { key, streamId } = await idleKey(queue);
    await db.inTransaction(async (client) => {
      await enqueueMany(db, client, [{ topic: queue.topic, key }]);
      expect((await forgetKeys()).forgotten).toBe(0);
    });
    expect(await streamsOf(key)).toEqual([streamId]);
    expect(await delivered(queue)).toEqual(['2-3']);
  });

  it.each(['READ COMMITTED', 'REPEATABLE READ'])(
    'that comes while its key is being forgotten gets a new stream, in %s',
    async (isolation) => {
      const queue = await makeQueue(db);
      const { key, streamId } = await idleKey(queue);
      const producer = await db.connect();
      await producer.query(`BEGIN ISOLATION LEVEL ${isolation}`);
      const waiter = await backendId(producer);
      await producer.query(`SELECT count(*) FROM ${db.quoted}.streams`);
      let enqueued: Promise<{ sequence: string | null }[]> | undefined;
      await db.inTransaction(async (client) => {
        expect((await forgetKeys(1_000_000, client)).forgotten).toBe(1);
        enqueued = enqueueMany(db, producer, [{ topic: queue.topic, key }]);
        await waitUntilBlocked(db, waiter);
      });
      expect(await enqueued).toMatchObject([{ sequence: '1' }]);
      await producer.query('COMMIT');
      expect(await streamsOf(key)).not.toContain(streamId);
      await forgetLanes();
      expect(await delivered(queue)).toEqual(['0-1']);
    },
  );

  it('no gap and no number twice within a stream, and its order kept, with many of them while keys are forgotten all the time', async () => {
    const queue = await makeQueue(db);
    const keys = Array.from({ length: 8 }, (_, n) => `${n}-${randomUUID()}`);
    const taken = new Map<string, number[]>();
    const arrived = new Map<string, number[]>();
    type Numbered = { stream_id: string | null; sequence: string | null };
    const note = (where: Map<string, number[]>, rows: Numbered[]) => {
      for (const { stream_id, sequence } of rows) {
        const stream = stream_id ?? '';
        where.set(stream, [...(where.get(stream) ?? []), Number(sequence)]);
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
            `SELECT stream_id, sequence FROM ${db.quoted}.messages WHERE id = ANY ($1)`,
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
          `UPDATE ${db.quoted}.streams SET last_used_at = '2020-01-01' WHERE id IN (
             SELECT id FROM ${db.quoted}.streams WHERE key = ANY ($1) FOR UPDATE SKIP LOCKED)`,
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
    expect(taken.size, 'streams').toBeGreaterThan(25);
    const sorted = (numbers: number[] = []) => numbers.toSorted((a, b) => a - b);
    for (const [stream, numbers] of taken) {
      expect(sorted(numbers), `of stream ${stream}`).toEqual(numbers.map((_, n) => n + 1));
      expect(arrived.get(stream), `of stream ${stream}`).toEqual(sorted(numbers));
    }
    expect(await queue.waiting()).toEqual([]);
  });
});

describe('the lane of a forgotten key', () => {
  const forgetStream = (key: string) =>
    db.query(`DELETE FROM ${db.quoted}.streams WHERE key = $1`, [key]);

  it.each(['lease_id', 'blocked_by', 'available_at'])('stays while %s is set', async (column) => {
    const { key, streamId } = await idleKey(await makeQueue(db));
    await forgetStream(key);
    const value = column === 'available_at' ? 'now()' : 'gen_random_uuid()';
    const set = (to: string) =>
      db.query(`UPDATE ${db.quoted}.lanes SET ${column} = ${to} WHERE stream_id = $1`, [streamId]);
    await set(value);
    await forgetLanes();
    expect(await lanesOf(streamId)).toBe(1);
    await set('NULL');
    await forgetLanes();
    expect(await lanesOf(streamId)).toBe(0);
  });

  it('stays while something waits in it, while somebody has it locked, and while the key is there', async () => {
    const queue = await makeQueue(db);
    const { key, streamId } = await idleKey(queue);
    await forgetLanes();
    expect(await lanesOf(streamId), 'the key is there').toBe(1);
    await queue.enqueue(1, { key });
    await forgetStream(key);
    await forgetLanes();
    expect(await lanesOf(streamId), 'something waits').toBe(1);
    expect(await delivered(queue)).toEqual(['2-3']);
    await db.inTransaction(async (client) => {
      await client.query(`SELECT FROM ${db.quoted}.lanes WHERE stream_id = $1 FOR UPDATE`, [
        streamId,
      ]);
      await forgetLanes();
    });
    expect(await lanesOf(streamId), 'somebody has it').toBe(1);
    await forgetLanes();
    expect(await lanesOf(streamId)).toBe(0);
  });

  it('what waits is delivered without it, and a ticket of which nothing waits is gone with the next claim', async () => {
    const queue = await makeQueue(db);
    const key = `job-${randomUUID()}`;
    const [id = ''] = await queue.enqueue(1, { key });
    await forgetStream(key);
    expect(await delivered(queue)).toEqual(['0-1']);
    const [other = ''] = await queue.enqueue(1, { key });
    await db.query(`SELECT ${db.quoted}.cancel($1)`, [other]);
    await forgetStream(key);
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
