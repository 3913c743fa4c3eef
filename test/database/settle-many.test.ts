// settle_many: outcomes of many leases in one call, each recorded as settle would record it.

import { expect, it } from 'vitest';

import { backendId, waitUntilBlocked } from '../support/locks.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Claim } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deliverLeases, expire, reap, settle, settleMany } from '../support/settling.js';
import type { Ending } from '../support/settling.js';

const db = testDatabase();

const relayId = '00000000-0000-7000-8000-00000000000a';

function endingsOf(claim: Claim, outcomes: readonly Ending['outcome'][]): Ending[] {
  return claim.ids.map((id, n) => {
    const outcome = outcomes[n];
    return { id, errorCode: 'e', latencyMs: n, ...(outcome === undefined ? {} : { outcome }) };
  });
}

it('C2 C3 every outcome of leases of several destinations is recorded under its own destination', async () => {
  const [one, other, third] = [
    await makeQueue(db, { maxAttempts: 1 }),
    await makeQueue(db),
    await makeQueue(db),
  ];
  for (const queue of [one, other, third]) await queue.enqueueAll([{}, {}, {}]);
  const claims = [
    await one.claim({ relayId }),
    await other.claim({ relayId }),
    await third.claim({ relayId }),
  ] as const;
  const results = await settleMany(db, relayId, [
    { ...claims[0], endings: endingsOf(claims[0], ['retry', 'delivered', 'reject']) },
    { ...claims[1], endings: endingsOf(claims[1], ['retry', 'delivered', 'reject']) },
    { ...claims[2], endings: endingsOf(claims[2], []).slice(0, 2) },
  ]);
  expect(results).toEqual([3, 3, 2].map((settled) => ({ settled, lost: [] })));
  const states = [];
  for (const [queue, claim] of [
    [one, claims[0]],
    [other, claims[1]],
    [third, claims[2]],
  ] as const) {
    const attempts = await Promise.all(claim.ids.map((id) => queue.attempts(id)));
    states.push(attempts.flat().map(({ state, latency_ms }) => [state, latency_ms]));
  }
  // a queue with a single try has no retry
  expect(states).toEqual([
    [
      ['failed', 0],
      ['dispatched', 1],
      ['failed', 2],
    ],
    [
      ['retryable', 0],
      ['dispatched', 1],
      ['failed', 2],
    ],
    [
      ['dispatched', 0],
      ['dispatched', 1],
    ],
  ]);
  const { rows: leases } = await db.query(
    `SELECT destination_id, remaining FROM ${db.quoted}.leases WHERE relay_id = $1`,
    [relayId],
  );
  expect(leases).toEqual([{ destination_id: third.id, remaining: 1 }]);
  expect(await misplaced(db)).toEqual([]);
});

it('C2 one message with claims at two destinations ends at each of them', async () => {
  const [one, other] = [await makeQueue(db), await makeQueue(db)];
  await db.query(`SELECT ${db.quoted}.define_route($1, $2)`, [one.topic, other.name]);
  await one.enqueueAll([{}]);
  const claims = [await one.claim({ relayId }), await other.claim({ relayId })] as const;
  expect(claims[0].ids).toEqual(claims[1].ids);
  await settleMany(db, relayId, [
    { ...claims[0], endings: endingsOf(claims[0], ['delivered']) },
    { ...claims[1], endings: endingsOf(claims[1], ['reject']) },
  ]);
  const [id = ''] = claims[0].ids;
  expect(await one.attempts(id)).toMatchObject([{ state: 'dispatched' }]);
  expect(await other.attempts(id)).toMatchObject([{ state: 'failed' }]);
});

it('C3 a lost lease is reported and does not hold up the others, and a repeated call changes nothing', async () => {
  const [one, other] = [await makeQueue(db), await makeQueue(db)];
  await one.enqueueAll([{}, {}]);
  await other.enqueueAll([{}]);
  const lost = await one.claim({ relayId });
  const held = await other.claim({ relayId });
  await expire(db, lost);
  await reap(db);
  const call = [
    { ...lost, endings: endingsOf(lost, ['delivered', 'retry']) },
    { ...held, endings: endingsOf(held, ['retry']) },
  ];
  const first = await settleMany(db, relayId, call);
  expect(first.map(({ settled }) => settled)).toEqual([0, 1]);
  expect(first[0]?.lost.toSorted()).toEqual(lost.ids.toSorted());
  const again = await settleMany(db, relayId, call);
  expect(again[1]).toEqual({ settled: 0, lost: [] });
  expect(await other.attempts(held.ids[0] ?? '')).toHaveLength(1);
  expect(await misplaced(db)).toEqual([]);
});

it('P2 the lanes of each lease go on as its outcomes say', async () => {
  const queue = await makeQueue(db);
  const claims: Claim[] = [];
  for (const key of ['a', 'b']) {
    await queue.enqueueAll([{ key }, { key }]);
    claims.push(await queue.claim({ relayId, limit: 1 }));
  }
  const [delivered, retried] = claims as [Claim, Claim];
  await settleMany(db, relayId, [
    { ...delivered, endings: endingsOf(delivered, ['delivered']) },
    { ...retried, endings: endingsOf(retried, ['retry']) },
  ]);
  // the second message of key a; key b waits for its first
  expect((await queue.claim()).rows).toMatchObject([{ key: 'a', sequence: '2' }]);
});

it.each(['settle_many', 'deliver_leases'] as const)(
  'P2 %s locks the lanes of several leases in one order, whatever the ids of the leases are',
  async (call) => {
    const [lower, higher] = [await makeQueue(db), await makeQueue(db)];
    const claims: Claim[] = [];
    for (const [queue, digit] of [
      [higher, '1'],
      [lower, '2'],
    ] as const) {
      await queue.enqueueAll([{ key: 'k' }]);
      const leaseId = `00000000-0000-7000-8000-0000000${call.length}00${digit}`;
      claims.push(await queue.claim({ relayId, leaseId }));
    }
    const operator = await db.connect();
    await operator.query('BEGIN');
    const lock = `SELECT FROM ${db.quoted}.lanes WHERE destination_id = $1 FOR UPDATE`;
    await operator.query(lock, [lower.id]);
    const settler = await db.connect();
    const waiter = await backendId(settler);
    const settling =
      call === 'settle_many'
        ? settleMany(
            db,
            relayId,
            claims.map((claim) => ({ ...claim, endings: endingsOf(claim, ['delivered']) })),
            settler,
          )
        : deliverLeases(
            db,
            relayId,
            claims.map(({ leaseId }) => ({ leaseId, latencies: [1] })),
            settler,
          );
    await waitUntilBlocked(db, waiter);
    // it waits for the lane of the lower destination first, so that of the higher one is still free
    await operator.query(`${lock} NOWAIT`, [higher.id]);
    await operator.query('COMMIT');
    expect(await settling).toHaveLength(2);
  },
);

it('C3 an outcome that pauses, or too few outcomes, are refused, and nothing is recorded', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueAll([{}, {}]);
  const claim = await queue.claim({ relayId });
  const settling = (outcomes: readonly Ending['outcome'][]): Promise<unknown> =>
    settleMany(db, relayId, [{ ...claim, endings: endingsOf(claim, outcomes) }]);
  await expect(settling(['delivered', 'pause'])).rejects.toThrow('use settle');
  await expect(settling(['delivered'])).rejects.toThrow('none of them null');
  expect(await queue.attempts(claim.ids[0] ?? '')).toEqual([]);
  const endings = endingsOf(claim, ['delivered', 'delivered']);
  expect(await settle(db, claim, endings)).toMatchObject({ settled: 2 });
});

it('M9 leases are locked in the order in which they are extended', async () => {
  const queue = await makeQueue(db);
  const claims: Claim[] = [];
  for (let n = 0; n < 20; n += 1) {
    await queue.enqueueAll([{}]);
    claims.push(await queue.claim({ relayId }));
  }
  const sorted = claims.toSorted((a, b) => (a.leaseId < b.leaseId ? -1 : 1));
  const extending = await db.connect();
  await extending.query('BEGIN');
  const lock = `SELECT FROM ${db.quoted}.leases WHERE id = $1 FOR UPDATE`;
  await extending.query(lock, [sorted[0]?.leaseId]);
  const settler = await db.connect();
  const waiter = await backendId(settler);
  const settling = settleMany(
    db,
    relayId,
    sorted.toReversed().map((claim) => ({ ...claim, endings: endingsOf(claim, ['retry']) })),
    settler,
  );
  await waitUntilBlocked(db, waiter);
  await extending.query(lock, [sorted.at(-1)?.leaseId]);
  await extending.query('COMMIT');
  expect(await settling).toEqual(sorted.map(() => ({ settled: 1, lost: [] })));
});
