// Leases: which holder has a claim and until when. The next claim finds a dead holder, its messages are requeued with
// the same id, and every claim number is issued once.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Claim, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { expire, reap, releaseLease, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

const atOnce = { retryBaseMs: 0, retryMaxMs: 0 };

async function claimByName(queue: Queue): Promise<string[]> {
  const { rows } = await db.query<{ message_id: string }>(
    `SELECT * FROM ${db.quoted}.claim($1, $2)`,
    [queue.name, randomUUID()],
  );
  return rows.map((row) => row.message_id);
}

async function extend(relayId: string, claims: Claim[]): Promise<string[]> {
  const { rows } = await db.query<{ held: string[] }>(
    `SELECT ${db.quoted}.extend_leases($1, $2) AS held`,
    [relayId, claims.map((claim) => claim.leaseId)],
  );
  return only(rows).held;
}

async function expiry(claim: Claim): Promise<number> {
  const { rows } = await db.query<{ expires_at: Date }>(
    `SELECT expires_at FROM ${db.quoted}.leases WHERE id = $1`,
    [claim.leaseId],
  );
  return only(rows).expires_at.getTime();
}

describe('expiry', () => {
  it('M6 P12 an expired lease is reclaimed by the next claim, with no other process', async () => {
    const queue = await makeQueue(db, atOnce);
    const [id = ''] = await queue.enqueue(1);
    const dead = await queue.claimOne();
    expect(await claimByName(queue), 'while the lease holds').toEqual([]);
    await expire(db, dead);
    expect(await claimByName(queue), 'after it expired').toEqual([id]);
    expect(await queue.status(id)).toMatchObject({ status: 'processing', tries: 2, claim_no: 2 });
    expect(await queue.attempts(id)).toMatchObject([
      {
        claim_no: 1,
        tries: 1,
        state: 'zombie_requeue',
        error_code: 'zombie',
        relay_id: dead.relayId,
      },
    ]);
  });

  it('P12 the reaper requeues with backoff only what was not settled', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 10_000, retryMaxMs: 10_000 });
    const [done = '', open = ''] = await queue.enqueue(2);
    const claim = await queue.claim();
    await settle(db, claim, [{ id: done, claimNo: 1 }]);
    await expire(db, claim);
    expect(await reap(db)).toBe(1);
    expect(await reap(db), 'a second time').toBe(0);
    const waiting = await queue.waiting();
    expect(waiting).toMatchObject([{ message_id: open, claim_no: 1, tries: 1, quarantined: true }]);
    expect(waiting[0]?.available_at.getTime()).toBeGreaterThan(Date.now() + 4_000);
    expect(await queue.attempts(done)).toMatchObject([{ state: 'dispatched' }]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M7 M6 a message at its maximum whose worker died becomes dead by itself', async () => {
    const queue = await makeQueue(db, { ...atOnce, maxAttempts: 3 });
    const [id = ''] = await queue.enqueue(1);
    for (const tries of [1, 2, 3]) {
      const claim = await queue.claimOne();
      expect(claim.row).toMatchObject({ tries, claim_no: tries });
      await expire(db, claim);
      await reap(db);
    }
    expect(await claimByName(queue)).toEqual([]);
    expect(await queue.deadLetters()).toMatchObject([
      { message_id: id, reason: 'exhausted', tries: 3, error_code: 'zombie' },
    ]);
    const states = (await queue.attempts(id)).map((attempt) => attempt.state);
    expect(states).toEqual(['zombie_requeue', 'zombie_requeue', 'failed']);
  });

  it('P12 any number of concurrent reapers free each message once', async () => {
    const queue = await makeQueue(db, atOnce);
    const ids = await queue.enqueue(60);
    for (let batch = 0; batch < 20; batch += 1) await expire(db, await queue.claim({ limit: 3 }));
    const reapers = await Promise.all(Array.from({ length: 6 }, () => db.connect()));
    const counts = await Promise.all(reapers.map((client) => reap(db, client)));
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(60);
    expect((await queue.waiting()).map((row) => row.message_id).toSorted()).toEqual(ids.toSorted());
    for (const id of ids) expect(await queue.attempts(id)).toHaveLength(1);
  });

  it('P12 a reaper skips a lease that is being settled', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(1);
    const claim = await queue.claim();
    await expire(db, claim);
    const client = await db.connect();
    await client.query('BEGIN');
    expect(await settleDelivered(db, claim, client)).toEqual({ settled: 1, lost: [] });
    expect(await reap(db)).toBe(0);
    await client.query('COMMIT');
    expect(await reap(db)).toBe(0);
    expect(await queue.waiting()).toEqual([]);
  });

  it('M6 a lease from the future, left by a clock that was set back, counts as expired', async () => {
    const queue = await makeQueue(db, atOnce);
    await queue.enqueue(1);
    const claim = await queue.claim({ leaseMs: 10_000 });
    expect(await reap(db), 'as it was claimed').toBe(0);
    await db.query(
      `UPDATE ${db.quoted}.leases SET expires_at = expires_at + interval '1 hour' WHERE id = $1`,
      [claim.leaseId],
    );
    expect(await reap(db)).toBe(1);
  });
});

describe('extending and releasing', () => {
  it('M6 an extension lasts as long as the lease did, and returns the leases that are still held', async () => {
    const queue = await makeQueue(db, atOnce);
    await queue.enqueue(3);
    const relayId = randomUUID();
    const kept = await queue.claim({ relayId, limit: 1, leaseMs: 60_000 });
    const lost = await queue.claim({ relayId, limit: 1 });
    const foreign = await queue.claim({ limit: 1 });
    await expire(db, lost);
    await reap(db);
    await expire(db, kept);
    expect(await extend(relayId, [kept, lost, foreign])).toEqual([kept.leaseId]);
    const left = (await expiry(kept)) - Date.now();
    expect(left).toBeGreaterThan(50_000);
    expect(left).toBeLessThan(61_000);
    expect(await reap(db)).toBe(0);
  });

  it('M6 a release requeues what was not settled and uses no try', async () => {
    const queue = await makeQueue(db);
    const [done = '', open = ''] = await queue.enqueue(2);
    const claim = await queue.claim();
    await settle(db, claim, [{ id: done, claimNo: 1 }]);
    expect(await releaseLease(db, { ...claim, relayId: randomUUID() })).toBe(0);
    expect(await releaseLease(db, claim)).toBe(1);
    expect(await releaseLease(db, claim)).toBe(0);
    expect(await queue.waiting()).toMatchObject([{ message_id: open, tries: 0, claim_no: 1 }]);
    expect(await queue.attempts(open)).toMatchObject([{ state: 'released', tries: 0 }]);
  });

  it('M6 a relay releases several of its own leases at once', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(4);
    const relayId = randomUUID();
    const lost = await queue.claim({ relayId, limit: 2 });
    const known = await queue.claim({ relayId, limit: 1 });
    const foreign = await queue.claim({ limit: 1 });
    const release = async (): Promise<number> => {
      const { rows } = await db.query<{ count: number }>(
        `SELECT ${db.quoted}.release_leases($1, $2) AS count`,
        [relayId, [lost.leaseId, foreign.leaseId, randomUUID()]],
      );
      return only(rows).count;
    };
    expect(await release()).toBe(2);
    expect(await release()).toBe(0);
    expect((await queue.waiting()).map((row) => row.message_id)).toEqual(ids.slice(0, 2));
    expect(await settleDelivered(db, known)).toEqual({ settled: 1, lost: [] });
    expect(await settleDelivered(db, foreign)).toEqual({ settled: 1, lost: [] });
  });

  it('M6 a quarantined delivery that is released is claimed alone again', async () => {
    const queue = await makeQueue(db, atOnce);
    await queue.enqueue(1);
    await expire(db, await queue.claim());
    await reap(db);
    const alone = await queue.claimOne();
    expect(alone.row.quarantined).toBe(true);
    await releaseLease(db, alone);
    await queue.enqueue(1);
    expect((await queue.claim()).rows).toMatchObject([{ message_id: alone.id, quarantined: true }]);
  });
});

describe('numbers', () => {
  it('M6 P4 claim numbers are contiguous from 1 over retries, releases, zombies and replays', async () => {
    const queue = await makeQueue(db, { ...atOnce, maxAttempts: 3 });
    const [id = ''] = await queue.enqueue(1);
    const end = async (how: 'retry' | 'release' | 'zombie' | 'reject'): Promise<void> => {
      const claim = await queue.claimOne();
      if (how === 'zombie') {
        await expire(db, claim);
        await reap(db);
      } else {
        await settle(db, claim, [{ id, claimNo: claim.row.claim_no, outcome: how }]);
      }
    };
    for (const how of ['release', 'retry', 'zombie', 'release', 'retry'] as const) await end(how);
    expect(await queue.status(id)).toMatchObject({ status: 'dead', tries: 3 });
    await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [queue.name]);
    await end('reject');
    await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [queue.name]);
    await settleDelivered(db, await queue.claimOne());
    const log = (await queue.attempts(id)).map((a) => `${a.claim_no} ${a.state} ${a.tries}`);
    expect(log).toEqual([
      '1 released 0',
      '2 retryable 1',
      '3 zombie_requeue 2',
      '4 released 2',
      '5 failed 3',
      '6 failed 1',
      '7 dispatched 1',
    ]);
    expect(await misplaced(db)).toEqual([]);
  });
});
