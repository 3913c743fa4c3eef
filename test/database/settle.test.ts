// Settle: one round trip ends any mix of claims, each exactly once, and returns how many this call really ended. The
// recorded endings are the system of record.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { releaseLease, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

function first(ids: string[]): string {
  return only(ids.slice(0, 1));
}

async function markDelivered(token: string, ids: string[]): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT ${db.quoted}.mark_delivered($1, $2) AS count`,
    [token, ids],
  );
  return only(rows).count;
}

describe('the outcomes', () => {
  it('P4 P11 C2 N5 one call records every outcome with every column', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 8000, retryMaxMs: 8000 });
    const payload = { n: [1, 'ü'] };
    const fields = { payload, headers: { h: 'v' }, tenantId: 't', key: 'k', dedupeKey: 't/1' };
    const aggregate = { aggregateType: 'order', aggregateId: 'o-1' };
    const [delivered = '', retried = '', rejected = '', released = ''] = await queue.enqueueAll([
      {},
      {},
      { ...fields, ...aggregate },
      {},
    ]);
    const claim = await queue.claim();
    const failure = { errorCode: 'http_status', remoteCode: '503', errorMessage: 'try later' };
    const settled = await settle(db, claim, [
      { id: delivered, claimNo: 1, outcome: 'delivered', latencyMs: 12, reference: 'r-1' },
      { id: retried, claimNo: 1, outcome: 'retry', latencyMs: 34, ...failure },
      { id: rejected, claimNo: 1, outcome: 'reject', latencyMs: 56, ...failure, remoteCode: '422' },
      { id: released, claimNo: 1, outcome: 'release' },
    ]);
    expect(settled).toEqual({ settled: 4, lost: [] });

    const common = { claim_no: 1, relay_id: claim.relayId, destination_id: queue.id };
    const error = { error_code: 'http_status', remote_code: '503', error_message: 'try later' };
    const attempts = await Promise.all(
      [delivered, retried, rejected, released].map((id) => queue.attempts(id)),
    );
    expect(attempts).toMatchObject([
      [{ ...common, state: 'dispatched', tries: 1, latency_ms: 12, reference: 'r-1' }],
      [{ ...common, state: 'retryable', tries: 1, latency_ms: 34, ...error }],
      [{ ...common, state: 'failed', tries: 1, latency_ms: 56, ...error, remote_code: '422' }],
      [{ ...common, state: 'released', tries: 0, latency_ms: null, error_code: null }],
    ]);
    for (const [attempt] of attempts) {
      expect(attempt?.claimed_at?.getTime()).toBeLessThanOrEqual(attempt?.ended_at.getTime() ?? 0);
    }

    const waiting = await queue.waiting();
    expect(waiting).toMatchObject([
      { message_id: released, claim_no: 1, tries: 0, quarantined: false },
      { message_id: retried, claim_no: 1, tries: 1, quarantined: false },
    ]);
    const endedAt = attempts[1]?.[0]?.ended_at.getTime() ?? 0;
    const delay = (waiting[1]?.available_at.getTime() ?? 0) - endedAt;
    expect(delay).toBeGreaterThanOrEqual(4000 - 1);
    expect(delay).toBeLessThanOrEqual(8000 + 1);

    const dead = only(await queue.deadLetters());
    expect(dead).toMatchObject({
      message_id: rejected,
      reason: 'rejected',
      tries: 1,
      claim_no: 1,
      error_code: 'http_status',
      remote_code: '422',
      error_message: 'try later',
      namespace: 'default',
      topic: queue.topic,
      tenant_id: 't',
      key: 'k',
      dedupe_key: 't/1',
      aggregate_type: 'order',
      aggregate_id: 'o-1',
      headers: { h: 'v' },
      payload,
    });
    expect(dead['dead_at']).toEqual(attempts[2]?.[0]?.ended_at);
    expect(await misplaced(db)).toEqual([]);
  });

  it('P11 a retry may have its own delay', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    const claim = await queue.claim();
    await settle(db, claim, [{ id, outcome: 'retry', retryAfterMs: 86_400_000 }]);
    const [waiting] = await queue.waiting();
    const hours = ((waiting?.available_at.getTime() ?? 0) - Date.now()) / 3_600_000;
    expect(hours).toBeGreaterThan(23.9);
    expect(hours).toBeLessThan(24.1);
  });

  it('P11 M6 the last failed try makes a dead letter, with reason exhausted', async () => {
    const queue = await makeQueue(db, { maxAttempts: 2, retryBaseMs: 0, retryMaxMs: 0 });
    const [id = ''] = await queue.enqueue(1);
    const failOnce = async (): Promise<void> => {
      const claim = await queue.claimOne();
      await settle(db, claim, [{ id, outcome: 'retry', errorCode: 'busy' }]);
    };
    await failOnce();
    expect(await queue.deadLetters()).toEqual([]);
    await failOnce();
    expect(await queue.waiting()).toEqual([]);
    expect(await queue.deadLetters()).toMatchObject([
      { message_id: id, reason: 'exhausted', tries: 2, claim_no: 2, error_code: 'busy' },
    ]);
    const states = (await queue.attempts(id)).map((attempt) => attempt.state);
    expect(states).toEqual(['retryable', 'failed']);
  });

  it('M6 a release uses no try, and the message comes back before newer ones', async () => {
    const queue = await makeQueue(db, { maxAttempts: 1 });
    const [id = ''] = await queue.enqueue(1);
    for (const claimNo of [1, 2, 3]) {
      const claim = await queue.claimOne();
      expect(claim.row).toMatchObject({ message_id: id, claim_no: claimNo, tries: 1 });
      await queue.enqueue(1, { delayMs: 60_000 });
      expect(await releaseLease(db, claim)).toBe(1);
    }
    await queue.makeDue();
    const last = await queue.claimOne();
    expect(last.row).toMatchObject({ message_id: id, claim_no: 4, tries: 1 });
    expect(await settleDelivered(db, last)).toEqual({ settled: 1, lost: [] });
  });

  it('P4 an attempt number cannot be recorded twice', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    await settleDelivered(db, await queue.claim());
    const again = db.query(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       VALUES ($1, $2, 1, 1, 'dispatched', now())`,
      [id, queue.id],
    );
    await expect(again).rejects.toMatchObject({ code: '23505' });
  });
});

describe('the count', () => {
  it('C2 a flush settles a part, the next one the rest, and the lease ends with the last', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(5);
    const claim = await queue.claim();
    const leases = async (): Promise<number | null> =>
      (await db.query(`SELECT FROM ${db.quoted}.leases WHERE id = $1`, [claim.leaseId])).rowCount;
    const part = (from: number, to: number) => claim.ids.slice(from, to).map((id) => ({ id }));
    expect(await settle(db, claim, part(0, 2))).toEqual({ settled: 2, lost: [] });
    expect(await leases()).toBe(1);
    expect(await settle(db, claim, part(2, 4))).toEqual({ settled: 2, lost: [] });
    expect(await settle(db, claim, part(4, 5))).toEqual({ settled: 1, lost: [] });
    expect(await leases()).toBe(0);
  });

  it('C2 a token that holds several batches settles all of them in one call', async () => {
    const queue = await makeQueue(db);
    const relayId = randomUUID();
    const ids = await queue.enqueue(6);
    for (let batch = 0; batch < 3; batch += 1) await queue.claim({ relayId, limit: 2 });
    expect(await markDelivered(relayId, ids.slice(1, 5))).toBe(4);
    expect(await markDelivered(relayId, ids)).toBe(2);
    expect(await markDelivered(relayId, ids)).toBe(0);
  });

  it('C2 the count is what this call settled, not what is delivered by now', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(3);
    const claim = await queue.claim();
    expect(await markDelivered(claim.relayId, [first(ids)])).toBe(1);
    expect(await markDelivered(claim.relayId, ids)).toBe(2);
  });

  it('C2 an id that occurs twice in one call is settled and counted once', async () => {
    const queue = await makeQueue(db);
    const [a = '', b = ''] = await queue.enqueue(2);
    const claim = await queue.claim();
    const twice = { id: a, claimNo: 1 };
    expect(await settle(db, claim, [twice, twice])).toEqual({ settled: 1, lost: [] });
    const retry = { id: b, claimNo: 1, outcome: 'retry', errorCode: 'busy' } as const;
    expect(await settle(db, claim, [retry, retry])).toEqual({ settled: 1, lost: [] });
    expect(await queue.waiting()).toHaveLength(1);
    expect(await queue.attempts(a)).toHaveLength(1);
  });

  it('C3 a wrong token settles nothing and says so', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(2);
    const claim = await queue.claim();
    const stranger = { leaseId: claim.leaseId, relayId: randomUUID() };
    const endings = ids.map((id) => ({ id, claimNo: 1 }));
    expect(await markDelivered(stranger.relayId, ids)).toBe(0);
    const answer = await settle(db, stranger, endings);
    expect(answer.settled).toBe(0);
    expect(answer.lost.toSorted()).toEqual(ids.toSorted());
    expect(await settleDelivered(db, claim)).toEqual({ settled: 2, lost: [] });
    const late = await settle(db, { ...claim, relayId: stranger.relayId }, endings);
    expect(late.lost.toSorted(), 'recorded by another holder').toEqual(ids.toSorted());
  });

  it('C3 M9 ids that the lease does not hold, and wrong claim numbers, settle nothing', async () => {
    const queue = await makeQueue(db);
    const [held = '', waiting = ''] = await queue.enqueue(2);
    const claim = await queue.claim({ limit: 1 });
    const unknown = randomUUID();
    const answer = await settle(db, claim, [
      { id: held, claimNo: 2 },
      { id: waiting, claimNo: 1 },
      { id: unknown, claimNo: 1 },
    ]);
    expect(answer.settled).toBe(0);
    expect(answer.lost.toSorted()).toEqual([held, waiting, unknown].toSorted());
    expect(await queue.status(held)).toMatchObject({ status: 'processing' });
  });
});

describe('isolation', () => {
  it.each(['REPEATABLE READ', 'SERIALIZABLE'])('C2 settle refuses %s', async (level) => {
    const queue = await makeQueue(db);
    await queue.enqueue(1);
    const claim = await queue.claim();
    const client = await db.connect();
    await client.query(`BEGIN ISOLATION LEVEL ${level}`);
    await expect(settleDelivered(db, claim, client)).rejects.toThrow(
      `settle works in READ COMMITTED only, not in ${level}`,
    );
  });

  it('C2 two concurrent flushes of one lease settle and count each claim once', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(10);
    const claim = await queue.claim();
    const [one, two] = await Promise.all([db.connect(), db.connect()]);
    await one.query('BEGIN');
    const endings = claim.ids.map((id) => ({ id, claimNo: 1 }));
    expect(await settle(db, claim, endings.slice(0, 6), one)).toEqual({ settled: 6, lost: [] });
    const backend = await backendId(two);
    const second = settle(db, claim, endings.slice(4), two);
    await waitUntilBlocked(db, backend);
    await one.query('COMMIT');
    expect(await second).toEqual({ settled: 4, lost: [] });
    const { rows } = await db.query(`SELECT FROM ${db.quoted}.leases WHERE id = $1`, [
      claim.leaseId,
    ]);
    expect(rows).toEqual([]);
    expect(await misplaced(db)).toEqual([]);
  });
});
