// The fence: a claim number is issued once and ends once. A holder whose lease expired, was released or was settled
// before changes nothing of what happened since.

import { describe, expect, it } from 'vitest';

import { addRoute } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Claim, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  deliverLease,
  expire,
  reap,
  releaseLease,
  settle,
  settleDelivered,
} from '../support/settling.js';

const db = testDatabase();

const atOnce = { retryBaseMs: 0, retryMaxMs: 0 };

async function snapshot(queue: Queue): Promise<unknown> {
  const { rows } = await db.query(
    `SELECT (SELECT jsonb_agg(d ORDER BY d.message_id) FROM ${db.quoted}.deliveries d WHERE destination_id = $1) AS deliveries,
            (SELECT jsonb_agg(l ORDER BY l.id) FROM ${db.quoted}.leases l WHERE destination_id = $1) AS leases,
            (SELECT jsonb_agg(a ORDER BY a.message_id, a.claim_no) FROM ${db.quoted}.attempts a WHERE destination_id = $1) AS attempts,
            (SELECT jsonb_agg(x ORDER BY x.message_id) FROM ${db.quoted}.dead_letters x WHERE destination_id = $1) AS dead_letters`,
    [queue.id],
  );
  return only(rows);
}

async function extend(claim: Claim): Promise<string[]> {
  const { rows } = await db.query<{ held: string[] }>(
    `SELECT ${db.quoted}.extend_leases($1, $2) AS held`,
    [claim.relayId, [claim.leaseId]],
  );
  return only(rows).held;
}

async function expectPowerless(queue: Queue, zombie: Claim): Promise<void> {
  const before = await snapshot(queue);
  expect(await deliverLease(db, zombie)).toBe(false);
  for (const outcome of ['delivered', 'retry', 'reject', 'release'] as const) {
    const endings = zombie.rows.map((row) => ({
      id: row.message_id,
      claimNo: row.claim_no,
      outcome,
      errorCode: 'late',
    }));
    const answer = await settle(db, zombie, endings);
    expect(answer.settled, outcome).toBe(0);
    expect(answer.lost.toSorted(), outcome).toEqual(zombie.ids.toSorted());
  }
  expect(
    (
      await settle(
        db,
        zombie,
        zombie.ids.map((id) => ({ id })),
      )
    ).settled,
  ).toBe(0);
  expect(await extend(zombie)).toEqual([]);
  expect(await releaseLease(db, zombie)).toBe(0);
  expect(await snapshot(queue)).toEqual(before);
}

describe('a holder that comes too late', () => {
  it('M9 C3 changes nothing after its lease was reaped, while the messages are pending', async () => {
    const queue = await makeQueue(db, atOnce);
    await queue.enqueue(2);
    const zombie = await queue.claim();
    await expire(db, zombie);
    expect(await reap(db)).toBe(2);
    await expectPowerless(queue, zombie);
  });

  it('M9 changes nothing while a new holder works, nor after it has finished', async () => {
    const queue = await makeQueue(db, atOnce);
    const [id = ''] = await queue.enqueue(1);
    const zombie = await queue.claimOne();
    await expire(db, zombie);
    await reap(db);
    const holder = await queue.claimOne();
    expect(holder.row.claim_no).toBe(2);
    await expectPowerless(queue, zombie);
    expect(await settleDelivered(db, holder)).toEqual({ settled: 1, lost: [] });
    await expectPowerless(queue, zombie);
    expect((await queue.attempts(id)).map((attempt) => attempt.state)).toEqual([
      'zombie_requeue',
      'dispatched',
    ]);
  });

  it('M9 changes nothing when the same relay has claimed the message again', async () => {
    const queue = await makeQueue(db, atOnce);
    await queue.enqueue(1);
    const old = await queue.claimOne();
    await expire(db, old);
    await reap(db);
    const renewed = await queue.claimOne({ relayId: old.relayId });
    const answer = await settle(db, renewed, [{ id: old.id, claimNo: old.row.claim_no }]);
    expect(answer).toEqual({ settled: 0, lost: [old.id] });
    await expectPowerless(queue, old);
    expect(await settleDelivered(db, renewed)).toEqual({ settled: 1, lost: [] });
  });

  it('M9 changes nothing after it released the message and another claimed it', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    const old = await queue.claimOne();
    expect(await releaseLease(db, old)).toBe(1);
    const holder = await queue.claimOne();
    const before = await snapshot(queue);
    const late = await settle(db, old, [{ id, claimNo: 1 }]);
    expect(late.settled).toBe(0);
    expect(await snapshot(queue)).toEqual(before);
    expect(await settleDelivered(db, holder)).toEqual({ settled: 1, lost: [] });
  });

  it('M9 M5 changes nothing of a dead letter that was retried since', async () => {
    const queue = await makeQueue(db, { maxAttempts: 1 });
    const [id = ''] = await queue.enqueue(1);
    const zombie = await queue.claimOne();
    await expire(db, zombie);
    await reap(db);
    expect(await queue.status(id)).toMatchObject({ status: 'dead' });
    await expectPowerless(queue, zombie);
    await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [queue.name]);
    await expectPowerless(queue, zombie);
    const holder = await queue.claimOne();
    expect(holder.row).toMatchObject({ claim_no: 2, tries: 1 });
    await expectPowerless(queue, zombie);
    expect(await settleDelivered(db, holder)).toEqual({ settled: 1, lost: [] });
    expect((await queue.attempts(id)).map(({ state, claim_no: no }) => `${no} ${state}`)).toEqual([
      '1 failed',
      '2 dispatched',
    ]);
    expect(await misplaced(db)).toEqual([]);
  });
});

describe('a repeat', () => {
  it('C2 M9 a settle repeated after an unknown commit is neither counted nor reported as lost', async () => {
    const queue = await makeQueue(db);
    const [a = '', b = '', c = ''] = await queue.enqueue(3);
    const claim = await queue.claim();
    const endings = [
      { id: a, claimNo: 1, outcome: 'delivered' as const },
      { id: b, claimNo: 1, outcome: 'retry' as const, errorCode: 'busy' },
      { id: c, claimNo: 1, outcome: 'release' as const },
    ];
    expect(await settle(db, claim, endings)).toEqual({ settled: 3, lost: [] });
    const before = await snapshot(queue);
    expect(await settle(db, claim, endings)).toEqual({ settled: 0, lost: [] });
    expect(await snapshot(queue)).toEqual(before);
  });

  it('C2 a repeat that overlaps settles only what is new', async () => {
    const queue = await makeQueue(db);
    const [a = '', b = ''] = await queue.enqueue(2);
    const claim = await queue.claim();
    await settle(db, claim, [{ id: a, claimNo: 1 }]);
    expect(await settleDelivered(db, claim)).toEqual({ settled: 1, lost: [] });
    expect(await queue.attempts(a)).toHaveLength(1);
    expect(await queue.attempts(b)).toHaveLength(1);
  });

  it('M9 a lost lease is reported also when the same relay delivered the message elsewhere', async () => {
    const [one, two] = await Promise.all([makeQueue(db, atOnce), makeQueue(db)]);
    await addRoute(db, two.id, one.topic);
    const [id = ''] = await one.enqueue(1);
    const lost = await one.claimOne();
    const kept = await two.claimOne({ relayId: lost.relayId });
    await settleDelivered(db, kept);
    await expire(db, lost);
    await reap(db);
    expect(await settle(db, lost, [{ id, claimNo: 1 }])).toEqual({ settled: 0, lost: [id] });
  });

  it('C2 W7 a settle with too few outcomes is refused, and no message vanishes', async () => {
    const queue = await makeQueue(db);
    const [a = '', b = ''] = await queue.enqueue(2);
    const claim = await queue.claim();
    await db
      .query(
        `SELECT * FROM ${db.quoted}.settle($1, $2, $3, NULL, ARRAY['delivered']::${db.quoted}.outcome[])`,
        [claim.leaseId, claim.relayId, [a, b]],
      )
      .catch(() => undefined);
    expect(await misplaced(db)).toEqual([]);
  });
});
