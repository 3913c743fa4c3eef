// deliver_leases: settles whole leases as delivered, if nothing of them was settled before.

import { expect, it } from 'vitest';

import { backendId, waitUntilBlocked } from '../support/locks.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deliverLease, deliverLeases, settle } from '../support/settling.js';

const db = testDatabase();

it('C2 N5 a whole lease is delivered in one call, each message with its own latency', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueAll([{}, {}, {}]);
  const claim = await queue.claim();
  const latencies = [11, null, 33];
  expect(await deliverLease(db, claim, { latencies })).toBe(true);
  const attempts = await Promise.all(claim.ids.map((id) => queue.attempts(id)));
  expect(attempts.flat()).toMatchObject(
    latencies.map((latency_ms) => ({
      state: 'dispatched',
      claim_no: 1,
      tries: 1,
      latency_ms,
      relay_id: claim.relayId,
      destination_id: queue.id,
    })),
  );
  expect(await deliverLease(db, claim, { latencies })).toBe(false);
  expect(await queue.claim()).toMatchObject({ ids: [] });
});

it('C3 a wrong token, or latencies that do not match, settle nothing', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueAll([{}, {}]);
  const claim = await queue.claim();
  const stranger = '00000000-0000-7000-8000-000000000001';
  expect(await deliverLease(db, { ...claim, relayId: stranger })).toBe(false);
  expect(await deliverLease(db, claim, { latencies: [1] })).toBe(false);
  expect(await deliverLease(db, claim, { latencies: [1, 2, 3] })).toBe(false);
  expect(await deliverLease(db, claim)).toBe(true);
});

it('C2 M9 a partly settled lease is left to settle, which ends the rest', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueAll([{}, {}]);
  const claim = await queue.claim();
  const [first = '', second = ''] = claim.ids;
  await settle(db, claim, [{ id: first, claimNo: 1, outcome: 'reject', errorCode: 'no' }]);
  expect(await deliverLease(db, claim)).toBe(false);
  expect(await deliverLease(db, claim, { latencies: [1] })).toBe(false);
  expect(await settle(db, claim, [{ id: second, claimNo: 1, outcome: 'delivered' }])).toEqual({
    settled: 1,
    lost: [],
  });
});

it('C2 leases of several destinations end together, and those that are lost do not hold them up', async () => {
  const [one, other] = [await makeQueue(db), await makeQueue(db)];
  const relayId = '00000000-0000-7000-8000-000000000002';
  const claims = [];
  for (const [queue, count] of [
    [one, 2],
    [other, 1],
    [one, 3],
  ] as const) {
    await queue.enqueueAll(Array.from({ length: count }, () => ({})));
    claims.push(await queue.claim({ relayId }));
  }
  const [first, second, third] = claims as [
    (typeof claims)[0],
    (typeof claims)[0],
    (typeof claims)[0],
  ];
  await settle(db, second, [{ id: second.ids[0] ?? '', claimNo: 1, outcome: 'release' }]);
  const leases = [
    { leaseId: first.leaseId, latencies: [1, 2] },
    { leaseId: second.leaseId, latencies: [3] },
    { leaseId: third.leaseId, latencies: [4, 5, 6] },
  ].toSorted((a, b) => (a.leaseId < b.leaseId ? -1 : 1));
  const ended = await deliverLeases(db, relayId, leases);
  expect(ended.toSorted()).toEqual([first.leaseId, third.leaseId].toSorted());
  const attempts = await Promise.all([...first.ids, ...third.ids].map((id) => one.attempts(id)));
  expect(attempts.flat()).toMatchObject(
    [1, 2, 4, 5, 6].map((latency_ms) => ({ latency_ms, destination_id: one.id })),
  );
  expect(await other.claim()).toMatchObject({ ids: second.ids });
});

it('P2 the lanes of every lease are free afterwards', async () => {
  const queue = await makeQueue(db);
  const relayId = '00000000-0000-7000-8000-000000000003';
  const claims = [];
  for (const key of ['a', 'b']) {
    await queue.enqueueAll([{ key }, { key }]);
    claims.push(await queue.claim({ relayId, limit: 1 }));
  }
  expect(claims.map(({ ids }) => ids.length)).toEqual([1, 1]);
  expect(await queue.claim()).toMatchObject({ ids: [] });
  const leases = claims
    .map(({ leaseId }) => ({ leaseId, latencies: [1] }))
    .toSorted((a, b) => (a.leaseId < b.leaseId ? -1 : 1));
  expect(await deliverLeases(db, relayId, leases)).toHaveLength(2);
  expect((await queue.claim()).rows).toMatchObject([{ sequence: '2' }, { sequence: '2' }]);
});

it('M9 leases are locked in the order in which they are extended, so neither deadlocks the other', async () => {
  const queue = await makeQueue(db);
  const relayId = '00000000-0000-7000-8000-000000000004';
  const leaseIds: string[] = [];
  for (let n = 0; n < 20; n += 1) {
    await queue.enqueueAll([{}]);
    leaseIds.push((await queue.claim({ relayId })).leaseId);
  }
  const sorted = leaseIds.toSorted();
  // an extension has locked the first lease, and is about to lock the last
  const extending = await db.connect();
  await extending.query('BEGIN');
  const lock = `SELECT FROM ${db.quoted}.leases WHERE id = $1 FOR UPDATE`;
  await extending.query(lock, [sorted[0]]);
  const settler = await db.connect();
  const waiter = await backendId(settler);
  const settling = deliverLeases(
    db,
    relayId,
    sorted.toReversed().map((leaseId) => ({ leaseId, latencies: [1] })),
    settler,
  );
  await waitUntilBlocked(db, waiter);
  await extending.query(lock, [sorted.at(-1)]);
  await extending.query('COMMIT');
  expect(await settling).toHaveLength(20);
});
