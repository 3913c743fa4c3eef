// deliver_lease: settles a whole lease as delivered, if nothing of it was settled before.

import { expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Claim } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

async function deliverLease(
  { leaseId, relayId }: Pick<Claim, 'leaseId' | 'relayId'>,
  latencies: (number | null)[],
): Promise<number> {
  const { rows } = await db.query<{ delivered: number }>(
    `SELECT ${db.quoted}.deliver_lease($1, $2, $3) AS delivered`,
    [leaseId, relayId, latencies],
  );
  return only(rows).delivered;
}

it('C2 N5 a whole lease is delivered in one call, each message with its own latency', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueAll([{}, {}, {}]);
  const claim = await queue.claim();
  expect(await deliverLease(claim, [11, null, 33])).toBe(3);
  const attempts = await Promise.all(claim.ids.map((id) => queue.attempts(id)));
  expect(attempts.flat()).toMatchObject(
    [11, null, 33].map((latency_ms) => ({
      state: 'dispatched',
      claim_no: 1,
      tries: 1,
      latency_ms,
      relay_id: claim.relayId,
      destination_id: queue.id,
    })),
  );
  expect(await deliverLease(claim, [11, null, 33])).toBe(0);
  expect(await queue.claim()).toMatchObject({ ids: [] });
});

it('C3 a wrong token, or latencies that do not match, settle nothing', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueAll([{}, {}]);
  const claim = await queue.claim();
  const stranger = '00000000-0000-7000-8000-000000000001';
  expect(await deliverLease({ ...claim, relayId: stranger }, [1, 2])).toBe(0);
  expect(await deliverLease(claim, [1])).toBe(0);
  expect(await deliverLease(claim, [1, 2, 3])).toBe(0);
  expect(await deliverLease(claim, [1, 2])).toBe(2);
});

it('C2 M9 deliver_lease does nothing for a partly settled lease, and settle ends the rest', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueAll([{}, {}]);
  const claim = await queue.claim();
  const [first = '', second = ''] = claim.ids;
  await settle(db, claim, [{ id: first, claimNo: 1, outcome: 'reject', errorCode: 'no' }]);
  expect(await deliverLease(claim, [1, 2])).toBe(0);
  expect(await deliverLease(claim, [1])).toBe(0);
  expect(await settle(db, claim, [{ id: second, claimNo: 1, outcome: 'delivered' }])).toEqual({
    settled: 1,
    lost: [],
  });
});
