// Claiming by lane: the messages of one key at one destination, one lease at a time, in sequence. A blocked key blocks
// no other key.

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { enqueueMany, makeQueue, misplaced } from '../support/outbox.js';
import {
  deliverLease,
  expire,
  reap,
  releaseLease,
  settle,
  settleDelivered,
} from '../support/settling.js';
import type { Claim, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const patient = { retryBaseMs: 600_000, retryMaxMs: 600_000 };
const atOnce = { retryBaseMs: 0, retryMaxMs: 0 };

/** A letter for the key and the number: a1. */
const numbers = (claim: Claim) =>
  claim.rows.map((row) => (row.key === null ? '-' : `${row.key}${row.sequence}`));

async function operate(call: string, values: unknown[]): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT ${db.quoted}.${call} AS count`,
    values,
  );
  return only(rows).count;
}

async function keyed(queue: Queue, keys: string): Promise<string[]> {
  return queue.enqueueAll(Array.from(keys, (key) => ({ key, namespace: queue.name })));
}

/** Removes the deliveries; only their tickets and lanes are left. */
async function forget(ids: string[]): Promise<void> {
  await db.query(`DELETE FROM ${db.quoted}.deliveries WHERE message_id = ANY ($1)`, [ids]);
  await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = ANY ($1)`, [ids]);
}

describe('a claim', () => {
  it('P2 returns several messages of a hot key in a row, each with its previous sequence', async () => {
    const queue = await makeQueue(db);
    await keyed(queue, 'a'.repeat(50));
    const claim = await queue.claim({ limit: 20 });
    expect(claim.rows.map((row) => Number(row.sequence))).toEqual(
      Array.from({ length: 20 }, (_, n) => n + 1),
    );
    expect(claim.rows.map((row) => Number(row.previous_sequence))).toEqual(
      Array.from({ length: 20 }, (_, n) => n),
    );
    await settleDelivered(db, claim);
    const next = await queue.claim({ limit: 20 });
    expect(next.rows[0]).toMatchObject({ sequence: '21', previous_sequence: '20' });
  });

  it('C10 P2 is not blocked by the tickets of another tenant', async () => {
    const queue = await makeQueue(db);
    const many = (tenantId: string, count: number) =>
      queue.enqueueAll(
        Array.from({ length: count }, (_, n) => ({ key: `${tenantId}-${n}`, tenantId })),
      );
    await many('noisy', 100);
    const ids = await many('quiet', 3);
    const claim = await queue.claim({ limit: 5, tenantIds: ['quiet'] });
    expect(claim.ids).toEqual(ids);
  });

  it('P2 is not blocked by the tickets and lanes of removed messages', async () => {
    const queue = await makeQueue(db);
    await keyed(queue, 'abc');
    await settleDelivered(db, await queue.claim({ limit: 3 }));
    const gone = Array.from({ length: 250 }, (_, n) => ({
      key: `gone-${n}`,
      namespace: queue.name,
    }));
    await forget(await queue.enqueueAll(gone));
    const [id = ''] = await keyed(queue, 'z');
    expect((await queue.claim({ limit: 5 })).ids).toEqual([id]);
    // and with the lanes active already
    const ids = await queue.enqueueAll(gone);
    await db.query(
      `SELECT ${db.quoted}.wake_lanes(d, 10000) FROM ${db.quoted}.destinations d WHERE id = $1`,
      [queue.id],
    );
    await forget(ids);
    const [later = ''] = await keyed(queue, 'y');
    expect((await queue.claim({ limit: 200 })).ids).toEqual([later]);
  });

  it('P2 shares its limit among the due keys', async () => {
    const queue = await makeQueue(db);
    await keyed(queue, 'aaaaaaabbbbbbbcc');
    expect(numbers(await queue.claim({ limit: 6 }))).toEqual(['a1', 'a2', 'b1', 'b2', 'c1', 'c2']);
  });

  it('P2 distinguishes a gap from a route that skips', async () => {
    const [here, there] = [await makeQueue(db), await makeQueue(db)];
    await enqueueMany(db, db.pool, [
      { topic: here.topic, key: 'routes' },
      { topic: there.topic, key: 'routes' },
      { topic: here.topic, key: 'routes' },
    ]);
    const claim = await here.claim();
    expect(claim.rows.map((row) => [row.sequence, row.previous_sequence])).toEqual([
      ['1', '0'],
      ['3', '1'],
    ]);
  });

  it('P2 gets nothing of a lane that another lease holds, until that lease has ended', async () => {
    const queue = await makeQueue(db);
    await keyed(queue, 'aaab');
    const first = await queue.claim({ limit: 2 });
    expect(numbers(first)).toEqual(['a1', 'b1']);
    await keyed(queue, 'ac');
    expect(numbers(await queue.claim())).toEqual(['c1']);
    await settle(db, first, [{ id: first.ids[1] ?? '', claimNo: 1 }]);
    expect(numbers(await queue.claim()), 'one message of another lane was settled').toEqual([]);
    await settle(db, first, [{ id: first.ids[0] ?? '', claimNo: 1 }]);
    expect(numbers(await queue.claim())).toEqual(['a2', 'a3', 'a4']);
  });

  it('P2 skips a key whose head waits for its retry, and nothing else', async () => {
    const queue = await makeQueue(db, patient);
    const [head = ''] = await keyed(queue, 'aaab');
    await queue.enqueue(1);
    const claim = await queue.claim({ limit: 2 });
    expect(numbers(claim)).toEqual(['-', 'a1']);
    await settle(db, claim, [{ id: head, outcome: 'retry', errorCode: 'x' }]);
    await keyed(queue, 'a');
    expect(numbers(await queue.claim())).toEqual(['b1']);
    expect(await operate('retry_now($1)', [queue.name])).toBe(1);
    expect(numbers(await queue.claim())).toEqual(['a1', 'a2', 'a3', 'a4']);
  });

  it('P2 waits for a delayed head, also when those behind it are due', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll([
      { key: 'a', namespace: queue.name, delayMs: 400 },
      { key: 'a', namespace: queue.name },
      { key: 'b', namespace: queue.name },
    ]);
    expect(numbers(await queue.claim())).toEqual(['b1']);
    const claim = await waitFor(
      async () => {
        const found = await queue.claim();
        return found.rows.length > 0 && found;
      },
      { what: 'the delayed head to become due' },
    );
    expect(numbers(claim)).toEqual(['a1', 'a2']);
  });

  it('P2 is not blocked by a producer with an open transaction, and returns other keys meanwhile', async () => {
    const queue = await makeQueue(db);
    const producer = await db.connect();
    await keyed(queue, 'a');
    await producer.query('BEGIN');
    await enqueueMany(db, producer, [
      { topic: queue.topic, key: 'a', namespace: queue.name },
      { topic: queue.topic, key: 'b', namespace: queue.name },
    ]);
    await keyed(queue, 'c');
    const relay = await db.connect();
    await relay.query("SET statement_timeout = '2s'");
    const claim = await queue.claim({ on: relay });
    expect(numbers(claim)).toEqual(['a1', 'c1']);
    await settleDelivered(db, claim, relay);
    expect(numbers(await queue.claim({ on: relay }))).toEqual([]);
    await producer.query('COMMIT');
    expect(numbers(await queue.claim({ on: relay }))).toEqual(['a2', 'b1']);
  });

  it('P2 refuses an old snapshot, as does every function that ends a claim', async () => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    const [head = ''] = await keyed(queue, 'bba');
    await queue.kill(head);
    const claim = await queue.claim({ limit: 1 });
    const client = await db.connect();
    const refused = { code: '25001' };
    for (const level of ['REPEATABLE READ', 'SERIALIZABLE']) {
      for (const attempt of [
        () => queue.claim({ on: client }),
        () => settleDelivered(db, claim, client),
        () => deliverLease(db, claim, { on: client }),
        () =>
          client.query(`SELECT ${db.quoted}.release_lease($1, $2)`, [claim.leaseId, claim.relayId]),
        () => reap(db, client),
        () => client.query(`SELECT ${db.quoted}.skip_dead_letters($1, $2)`, [queue.name, [head]]),
      ]) {
        await client.query(`BEGIN ISOLATION LEVEL ${level}`);
        await expect(attempt()).rejects.toMatchObject(refused);
        await client.query('ROLLBACK');
      }
    }
  });
});

describe('a requeued message', () => {
  it('P2 P12 is claimed in order after a lease has expired, and alone', async () => {
    const queue = await makeQueue(db, atOnce);
    await keyed(queue, 'aab');
    await expire(db, await queue.claim());
    expect(await reap(db)).toBe(3);
    await keyed(queue, 'a');
    const seen: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      const claim = await queue.claim();
      seen.push(...numbers(claim));
      await settleDelivered(db, claim);
    }
    expect(seen.filter((each) => each.startsWith('a'))).toEqual(['a1', 'a2', 'a3']);
    expect(seen).toContain('b1');
    expect(await misplaced(db)).toEqual([]);
  });

  it('P2 P12 of an expired lease that is settled late does not free the lane of the next lease', async () => {
    const queue = await makeQueue(db, atOnce);
    await keyed(queue, 'aa');
    const dead = await queue.claim({ limit: 1 });
    await expire(db, dead);
    await reap(db);
    const successor = await queue.claim();
    expect(numbers(successor)).toEqual(['a1']);
    expect(await settleDelivered(db, dead)).toMatchObject({ settled: 0, lost: dead.ids });
    expect(numbers(await queue.claim())).toEqual([]);
    await settleDelivered(db, successor);
    expect(numbers(await queue.claim())).toEqual(['a2']);
  });

  it('P2 keeps its order when it is released', async () => {
    const queue = await makeQueue(db);
    await keyed(queue, 'aaa');
    const claim = await queue.claim({ limit: 2 });
    await keyed(queue, 'a');
    await releaseLease(db, claim);
    expect(numbers(await queue.claim())).toEqual(['a1', 'a2', 'a3', 'a4']);
  });

  it('P2 behind a failed head waits for the head', async () => {
    const queue = await makeQueue(db, patient);
    const ids = await keyed(queue, 'aaa');
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      ids.map((id, index) => ({ id, outcome: index === 0 ? 'retry' : 'release' })),
    );
    expect(numbers(await queue.claim())).toEqual([]);
    await queue.makeDue();
    expect(numbers(await queue.claim())).toEqual(['a1', 'a2', 'a3']);
  });

  it('P4 P2 of a key that fails message by message is claimed a few times, not once for each failure', async () => {
    const queue = await makeQueue(db);
    const ids = await keyed(queue, 'a'.repeat(64));
    const failed: string[] = [];
    for (let claim = await queue.claim(); claim.ids.length > 0; claim = await queue.claim()) {
      failed.push(claim.ids[0] ?? '');
      const outcomes = claim.ids.map((id, index) => ({
        id,
        outcome: index === 0 ? ('reject' as const) : ('release' as const),
        errorCode: 'bad',
      }));
      await settle(db, claim, outcomes);
    }
    expect(failed).toEqual(ids);
    const { rows } = await db.query<{ claims: number }>(
      `SELECT max(claim_no) AS claims FROM ${db.quoted}.attempts WHERE message_id = ANY ($1)`,
      [ids],
    );
    // 64, 32, 16, 8, 4, 2, 1
    expect(only(rows).claims).toBeLessThanOrEqual(8);
  });

  it('P2 that is cancelled at the head of its key lets the next one be claimed', async () => {
    const queue = await makeQueue(db, patient);
    const [head = ''] = await keyed(queue, 'aa');
    const claim = await queue.claim({ limit: 1 });
    await settle(db, claim, [{ id: head, outcome: 'retry' }]);
    expect(numbers(await queue.claim())).toEqual([]);
    expect(await operate('cancel($1)', [head])).toBe(1);
    expect((await queue.claim()).rows).toMatchObject([{ sequence: '2', previous_sequence: '0' }]);
  });

  it('P2 leaves an empty key idle: no relay checks it again', async () => {
    const queue = await makeQueue(db);
    const [head = ''] = await keyed(queue, 'a');
    await releaseLease(db, await queue.claim());
    expect(await operate('cancel($1)', [head])).toBe(1);
    expect(numbers(await queue.claim())).toEqual([]);
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.next_due() WHERE destination_id = $1`,
      [queue.id],
    );
    expect(rows).toEqual([]);
  });

  it('P2 a key whose pending messages were all discarded does not wait for their due time', async () => {
    const queue = await makeQueue(db, patient);
    const [head = ''] = await keyed(queue, 'aa');
    const claim = await queue.claim({ limit: 1 });
    await settle(db, claim, [{ id: head, outcome: 'retry' }]);
    expect(await operate('discard_deliveries($1)', [queue.name])).toBe(2);
    await keyed(queue, 'a');
    expect(numbers(await queue.claim())).toEqual(['a3']);
  });

  it('P2 a key whose pending messages were moved continues at both destinations', async () => {
    const [from, to] = [await makeQueue(db, patient), await makeQueue(db)];
    const [head = ''] = await keyed(from, 'aa');
    const claim = await from.claim({ limit: 1 });
    await settle(db, claim, [{ id: head, outcome: 'retry' }]);
    await to.makeDue();
    expect(await operate('move_deliveries($1, $2)', [from.name, to.name])).toBe(2);
    await keyed(from, 'a');
    expect(numbers(await from.claim())).toEqual(['a3']);
    await to.makeDue();
    expect(numbers(await to.claim())).toEqual(['a1', 'a2']);
  });
});

describe('keys whose first message is quarantined', () => {
  const quarantine = (queue: Queue, ids: string[]) =>
    db.query(
      `UPDATE ${db.quoted}.deliveries SET quarantined = true WHERE destination_id = $1 AND message_id = ANY ($2)`,
      [queue.id, ids],
    );
  const keys = (prefix: string, count: number) =>
    Array.from({ length: count }, (_, n) => ({ key: `${prefix}${n}` }));

  it('M6 P2 are claimed although those of many blocked keys wait', async () => {
    const queue = await makeQueue(db, { ...atOnce, whenDead: 'block' });
    await queue.enqueueAll(keys('blocked', 15));
    const dying = await queue.claim({ limit: 15 });
    await settle(
      db,
      dying,
      dying.ids.map((id) => ({ id, outcome: 'reject' })),
    );
    await quarantine(queue, await queue.enqueueAll(keys('blocked', 15)));
    const [free] = await queue.enqueueAll([{ key: 'free' }]);
    await queue.claim({ limit: 1, namespace: 'wakes the lanes only' });
    await quarantine(queue, [free ?? '']);
    const claim = await queue.claim({ limit: 10 });
    expect(claim.rows).toMatchObject([{ message_id: free, quarantined: true }]);
  });

  it('M6 P2 do not hide the keys behind them', async () => {
    const queue = await makeQueue(db);
    await quarantine(queue, await queue.enqueueAll(keys('quarantined', 250)));
    await queue.claim({ limit: 100, namespace: 'wakes the lanes only' });
    await queue.claim({ limit: 100, namespace: 'wakes the lanes only' });
    const healthy = await queue.enqueueAll(keys('healthy', 3));
    const claim = await queue.claim({ limit: 100, lanesFirst: true });
    expect(claim.ids.toSorted()).toEqual(healthy.toSorted());
  });
});
