// Claim: the oldest due deliveries leave the queue and get one lease, in one atomic call that never waits for another
// claim and never returns the same row.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { backendId } from '../support/locks.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { expire, reap, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

describe('order and bounds', () => {
  it('C1 M8 a claim returns the oldest due first, then by id', async () => {
    const queue = await makeQueue(db);
    const time = (minute: number): string =>
      new Date(Date.UTC(2024, 0, 1, 0, minute)).toISOString();
    const ids = await queue.enqueueAll([
      { availableAt: time(3) },
      { availableAt: time(1) },
      { availableAt: time(2) },
      { availableAt: time(1) },
      { availableAt: time(1) },
    ]);
    const sameTime = ids.filter((_, n) => [1, 3, 4].includes(n)).toSorted();
    const claim = await queue.claim();
    expect(claim.ids).toEqual([...sameTime, ids[2], ids[0]]);
    expect(claim.rows.map((row) => row.claim_no)).toEqual([1, 1, 1, 1, 1]);
  });

  it('C1 M8 a retry is due at its retry time, before and after others', async () => {
    const queue = await makeQueue(db);
    const [retried] = await queue.enqueue(1);
    const first = await queue.claimOne();
    await settle(db, first, [{ id: first.id, outcome: 'retry', retryAfterMs: 60_000 }]);
    const [later] = await queue.enqueue(1);
    expect((await queue.waiting()).map((row) => row.message_id)).toEqual([later, retried]);
    expect((await queue.claim()).ids).toEqual([later]);
    await queue.makeDue();
    const [latest] = await queue.enqueue(1);
    expect((await queue.claim()).ids).toEqual([retried, latest]);
  });

  it('C1 a claim takes at most the limit, and the rest stays in order', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(7);
    expect((await queue.claim({ limit: 3 })).ids).toEqual(ids.slice(0, 3));
    expect((await queue.claim({ limit: 3 })).ids).toEqual(ids.slice(3, 6));
    expect((await queue.claim({ limit: 3 })).ids).toEqual(ids.slice(6));
    expect((await queue.claim({ limit: 3 })).ids).toEqual([]);
  });

  it('C1 a claim is also bounded by bytes, but always takes one message', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(5, { payload: 'x'.repeat(1000) });
    expect((await queue.claim({ maxBytes: 2100 })).ids).toEqual(ids.slice(0, 2));
    expect((await queue.claim({ maxBytes: 10 })).ids).toEqual(ids.slice(2, 3));
    expect((await queue.claim({ maxBytes: 1_000_000 })).ids).toEqual(ids.slice(3));
  });

  it('C1 the bytes of a large payload count the same after a retry', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 0 });
    await queue.enqueue(3, { payload: 'x'.repeat(500_000) });
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      claim.ids.map((id) => ({ id, outcome: 'retry', retryAfterMs: 0 })),
    );
    expect((await queue.claim({ maxBytes: 1_100_000 })).ids).toHaveLength(2);
  });

  it('C1 a delivery that is not due, or of another destination, is not claimed', async () => {
    const [queue, other] = await Promise.all([makeQueue(db), makeQueue(db)]);
    await queue.enqueue(1, { delayMs: 60_000 });
    await other.enqueue(1);
    expect((await queue.claim()).ids).toEqual([]);
    await queue.makeDue();
    expect((await queue.claim()).ids).toHaveLength(1);
  });

  it('C10 C1 a claim can be limited to one tenant, a list of tenants, and a namespace', async () => {
    const queue = await makeQueue(db);
    const [a1, b1, c1, none, a2, b2] = await queue.enqueueAll([
      { tenantId: 'a' },
      { tenantId: 'b' },
      { tenantId: 'c' },
      {},
      { tenantId: 'a', namespace: 'shop' },
      { tenantId: 'b', namespace: 'shop' },
    ]);
    expect((await queue.claim({ tenantIds: ['a'], limit: 1 })).ids).toEqual([a1]);
    expect((await queue.claim({ tenantIds: ['b', 'a', 'b'], limit: 2 })).ids).toEqual([b1, a2]);
    expect((await queue.claim({ tenantIds: ['unknown'] })).ids).toEqual([]);
    expect((await queue.claim({ tenantIds: [] })).ids).toEqual([]);
    expect((await queue.claim({ tenantIds: ['c'], namespace: 'shop' })).ids).toEqual([]);
    expect((await queue.claim({ namespace: 'shop' })).ids).toEqual([b2]);
    expect((await queue.claim()).ids).toEqual([c1, none]);
  });
});

describe('the holder', () => {
  it('C1 M6 P6 a claim removes the deliveries from the queue, and the token names its holder', async () => {
    const queue = await makeQueue(db);
    const token = randomUUID();
    const [id = ''] = await queue.enqueue(1, { payload: { big: '12345678901234567890' } });
    const { rows } = await db.query(
      `SELECT * FROM ${db.quoted}.claim($1, $2, 10, lease => interval '1 minute')`,
      [queue.name, token],
    );
    expect(rows).toMatchObject([{ message_id: id, claim_no: 1, tries: 1, topic: queue.topic }]);
    expect(only(rows)['payload']).toEqual({ big: '12345678901234567890' });
    expect(await queue.waiting()).toEqual([]);
    const status = await queue.status(id);
    expect(status).toMatchObject({ status: 'processing', locked_by: token, tries: 1 });
    const left = (status['locked_until'] as Date).getTime() - Date.now();
    expect(left).toBeGreaterThan(30_000);
    expect(left).toBeLessThan(61_000);
  });

  it('C6 100 messages cost two round trips', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(100);
    const client = await db.connect();
    const token = randomUUID();
    let roundTrips = 0;
    const ask = async <Row extends object>(sql: string, values: unknown[]): Promise<Row[]> => {
      roundTrips += 1;
      return (await client.query<Row>(sql, values)).rows;
    };
    const claimed = await ask<{ message_id: string; payload: unknown }>(
      `SELECT * FROM ${db.quoted}.claim($1, $2, 100)`,
      [queue.name, token],
    );
    const [answer] = await ask<{ count: number }>(
      `SELECT ${db.quoted}.mark_delivered($1, $2) AS count`,
      [token, claimed.map((row) => row.message_id)],
    );
    expect(claimed.map((row) => row.payload)).toEqual(
      Array.from({ length: 100 }, (_, n) => ({ n: n + 1 })),
    );
    expect(answer?.count).toBe(100);
    expect(roundTrips).toBe(2);
    expect(await queue.waiting()).toEqual([]);
  });

  it('C1 the simple form refuses a missing token and an unknown destination with a clear error', async () => {
    const queue = await makeQueue(db);
    const claim = (name: string, token: string | null): Promise<unknown> =>
      db.query(`SELECT * FROM ${db.quoted}.claim($1, $2)`, [name, token]);
    await expect(claim(queue.name, null)).rejects.toThrow(/token is null: give a UUID/);
    await expect(claim('nowhere', randomUUID())).rejects.toThrow(
      /destination "nowhere" does not exist/,
    );
  });

  it('C10 the simple form can be limited to a tenant', async () => {
    const queue = await makeQueue(db);
    const [, wanted] = await queue.enqueueAll([{ tenantId: 'a' }, { tenantId: 'b' }]);
    const { rows } = await db.query<{ message_id: string }>(
      `SELECT * FROM ${db.quoted}.claim($1, $2, 10, tenant => 'b')`,
      [queue.name, randomUUID()],
    );
    expect(rows.map((row) => row.message_id)).toEqual([wanted]);
  });

  it('M5 a paused destination returns nothing until it is resumed', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(1);
    const claimed = async (): Promise<number | null> =>
      (await db.query(`SELECT * FROM ${db.quoted}.claim($1, $2)`, [queue.name, randomUUID()]))
        .rowCount;
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
    expect(await claimed()).toBe(0);
    await db.query(`SELECT ${db.quoted}.set_paused($1, false)`, [queue.name]);
    expect(await claimed()).toBe(1);
  });
});

describe('many at once', () => {
  it('C1 a claim does not wait for rows that another transaction has claimed and not committed', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(10);
    const [first, second] = await Promise.all([db.connect(), db.connect()]);
    await first.query('BEGIN');
    expect((await queue.claim({ on: first, limit: 4 })).ids).toEqual(ids.slice(0, 4));
    await second.query(`SET lock_timeout = '1s'`);
    expect((await queue.claim({ on: second })).ids).toEqual(ids.slice(4));
    await first.query('ROLLBACK');
    expect((await queue.claim({ on: second })).ids).toEqual(ids.slice(0, 4));
  });

  it('C1 P6 eight claimers drain 10,000 messages with no overlap, no loss and no lock wait', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(10_000);
    const claimers = await Promise.all(Array.from({ length: 8 }, () => db.connect()));
    const backends = await Promise.all(claimers.map((client) => backendId(client)));
    const draining = { on: true };
    const waits: string[] = [];
    const watch = async (): Promise<void> => {
      while (draining.on) {
        const { rows } = await db.query<{ event: string }>(
          `SELECT locktype || ' ' || mode AS event FROM pg_locks
            WHERE pid = ANY ($1) AND NOT granted AND locktype IN ('tuple', 'transactionid')`,
          [backends],
        );
        waits.push(...rows.map((row) => row.event));
      }
    };
    const drain = async (client: (typeof claimers)[number]): Promise<string[]> => {
      const taken: string[] = [];
      for (;;) {
        const claim = await queue.claim({ on: client, limit: 97 });
        if (claim.ids.length === 0) return taken;
        expect(await settleDelivered(db, claim, client)).toEqual({
          settled: claim.ids.length,
          lost: [],
        });
        taken.push(...claim.ids);
      }
    };
    const watching = watch();
    const taken = await Promise.all(claimers.map(drain));
    draining.on = false;
    await watching;
    expect(taken.flat().toSorted()).toEqual(ids.toSorted());
    expect(waits).toEqual([]);
    expect(await misplaced(db)).toEqual([]);
  });
});

describe('special cases', () => {
  it('W7 a delivery whose message is missing becomes a dead letter and hides no other', async () => {
    const queue = await makeQueue(db);
    const [lost, kept] = await queue.enqueue(2);
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [lost]);
    const { rows } = await db.query<{ message_id: string }>(
      `SELECT * FROM ${db.quoted}.claim($1, $2)`,
      [queue.name, randomUUID()],
    );
    expect(rows.map((row) => row.message_id)).toEqual([kept]);
    expect(await queue.deadLetters()).toMatchObject([
      { message_id: lost, reason: 'rejected', error_code: 'message_missing', payload: null },
    ]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M7 a message whose holder died is claimed alone, and its neighbours together', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 0, retryMaxMs: 0 });
    const [quarantined, ...others] = await queue.enqueue(4);
    const claim = await queue.claim({ limit: 1 });
    await expire(db, claim);
    expect(await reap(db)).toBe(1);
    const alone = await queue.claim();
    expect(alone.ids).toEqual([quarantined]);
    expect(alone.rows).toMatchObject([{ quarantined: true, tries: 2, claim_no: 2 }]);
    expect((await queue.claim()).ids).toEqual(others);
  });

  it('M7 messages whose holder died and the others are claimed alternately', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 0, retryMaxMs: 0 });
    const dead = await queue.enqueue(2);
    await expire(db, await queue.claim());
    expect(await reap(db)).toBe(2);
    const others = await queue.enqueue(4);
    const claimed: string[] = [];
    const alone: string[] = [];
    for (let claims = 0; claims < 2; claims += 1) {
      claimed.push(...(await queue.claim({ limit: 2, lanesFirst: true })).ids);
      alone.push((await queue.claimOne()).id);
    }
    expect(claimed).toEqual(others);
    expect(alone.toSorted()).toEqual(dead.toSorted());
  });
});
