// A move while relays work, each in its own open transaction: whichever comes first, a delivery is at one destination
// afterwards, and is sent once.

import type pg from 'pg';
import { describe, expect, it } from 'vitest';

import { addRoute } from '../support/destinations.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Connection, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

type Ending = 'COMMIT' | 'ROLLBACK';

async function move(from: Queue, to: Queue, on: Connection, count = 1000): Promise<number> {
  const { rows } = await on.query<{ count: number }>(
    `SELECT ${db.quoted}.move_deliveries($1, $2, $3) AS count`,
    [from.name, to.name, count],
  );
  return only(rows).count;
}

/** A connection in a transaction that fails instead of waiting. */
async function begin(): Promise<pg.Client> {
  const client = await db.connect();
  await client.query(`SET lock_timeout = '2s'`);
  await client.query('BEGIN');
  return client;
}

/** Delivers everything that is due at a queue and returns the ids. */
async function deliverAll(queue: Queue): Promise<string[]> {
  const claim = await queue.claim();
  await settleDelivered(db, claim);
  return claim.ids;
}

/** Two queues, and one message that is pending at both of them. */
async function waitsAtBoth(): Promise<{ from: Queue; to: Queue; id: string }> {
  const [from, to] = await Promise.all([makeQueue(db), makeQueue(db)]);
  await addRoute(db, to.id, from.topic);
  return { from, to, id: await from.enqueueOne() };
}

describe('a claim at the old destination', () => {
  it.each<[Ending, Ending]>([
    ['COMMIT', 'COMMIT'],
    ['COMMIT', 'ROLLBACK'],
    ['ROLLBACK', 'COMMIT'],
  ])(
    'M5 that came first keeps its deliveries, and the move takes the rest without waiting: %s and %s',
    async (claimEnds, moveEnds) => {
      const [from, to] = await Promise.all([makeQueue(db), makeQueue(db)]);
      const ids = await from.enqueue(4);
      const [relay, operator] = await Promise.all([begin(), begin()]);
      const claim = await from.claim({ on: relay, limit: 2 });
      expect(claim.ids).toEqual(ids.slice(0, 2));
      expect(await move(from, to, operator)).toBe(2);
      await relay.query(claimEnds);
      await operator.query(moveEnds);
      expect(await misplaced(db)).toEqual([]);
      if (claimEnds === 'COMMIT') await settleDelivered(db, claim);
      const stayed = [
        ...(claimEnds === 'COMMIT' ? [] : ids.slice(0, 2)),
        ...(moveEnds === 'COMMIT' ? [] : ids.slice(2)),
      ];
      expect(await deliverAll(from)).toEqual(stayed);
      expect(await deliverAll(to)).toEqual(moveEnds === 'COMMIT' ? ids.slice(2) : []);
      expect(await misplaced(db)).toEqual([]);
    },
  );

  it.each<[Ending]>([['COMMIT'], ['ROLLBACK']])(
    'M5 that comes second takes what the move left, without waiting: %s',
    async (moveEnds) => {
      const [from, to] = await Promise.all([makeQueue(db), makeQueue(db)]);
      const ids = await from.enqueue(4);
      const [relay, operator] = await Promise.all([begin(), begin()]);
      expect(await move(from, to, operator, 2)).toBe(2);
      const claim = await from.claim({ on: relay });
      expect(claim.ids).toEqual(ids.slice(2));
      await operator.query(moveEnds);
      await relay.query('COMMIT');
      expect(await misplaced(db)).toEqual([]);
      await settleDelivered(db, claim);
      expect(await deliverAll(from)).toEqual(moveEnds === 'COMMIT' ? [] : ids.slice(0, 2));
      expect(await deliverAll(to)).toEqual(moveEnds === 'COMMIT' ? ids.slice(0, 2) : []);
      expect(await misplaced(db)).toEqual([]);
    },
  );
});

describe('a claim at the new destination', () => {
  it.each<[Ending]>([['COMMIT'], ['ROLLBACK']])(
    'M5 of a message that is moved there is waited for, and it is sent there once: %s',
    async (claimEnds) => {
      const { from, to, id } = await waitsAtBoth();
      const [relay, operator] = await Promise.all([begin(), db.connect()]);
      const claim = await to.claim({ on: relay });
      expect(claim.ids).toEqual([id]);
      const backend = await backendId(operator);
      const moved = move(from, to, operator);
      await waitUntilBlocked(db, backend);
      await relay.query(claimEnds);
      expect(await moved).toBe(1);
      expect(await misplaced(db)).toEqual([]);
      if (claimEnds === 'COMMIT') await settleDelivered(db, claim);
      expect(await deliverAll(to)).toEqual(claimEnds === 'COMMIT' ? [] : [id]);
      expect((await to.attempts(id)).map(({ state }) => state)).toEqual(['dispatched']);
      expect(await misplaced(db)).toEqual([]);
    },
  );

  it('M5 finds a message once after it was moved there', async () => {
    const { from, to, id } = await waitsAtBoth();
    const other = await from.enqueueOne();
    const [relay, operator] = await Promise.all([begin(), begin()]);
    expect(await move(from, to, operator)).toBe(2);
    const early = await to.claim({ on: relay });
    await relay.query('COMMIT');
    await operator.query('COMMIT');
    expect(await misplaced(db)).toEqual([]);
    await settleDelivered(db, early);
    expect([...early.ids, ...(await deliverAll(to))].toSorted()).toEqual([id, other].toSorted());
  });
});

describe('two moves', () => {
  it('M5 in opposite directions are serialized, and a message that is pending at both ends is delivered once', async () => {
    const { from, to, id } = await waitsAtBoth();
    const [blocker, there, back] = [await begin(), await db.connect(), await db.connect()];
    // the first is blocked when it has taken the message away and not yet checked the other end
    await blocker.query(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       SELECT $1, d, 1, 0, 'discarded', now() FROM unnest($2::int[]) d`,
      [id, [from.id, to.id]],
    );
    const backends = [await backendId(there), await backendId(back)];
    const moves = Promise.all([move(from, to, there), move(to, from, back)]);
    for (const backend of backends) await waitUntilBlocked(db, backend);
    await blocker.query('ROLLBACK');
    expect(await moves).toEqual([1, 1]);
    expect([...(await deliverAll(from)), ...(await deliverAll(to))]).toEqual([id]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 of one message to one destination create one delivery, also if it is claimed at once', async () => {
    const { from, to: other, id } = await waitsAtBoth();
    const to = await makeQueue(db);
    const [first, second] = await Promise.all([begin(), db.connect()]);
    expect(await move(from, to, first)).toBe(1);
    const backend = await backendId(second);
    const moved = move(other, to, second);
    await waitUntilBlocked(db, backend);
    await first.query('COMMIT');
    expect(await moved).toBe(1);
    expect(await deliverAll(to)).toEqual([id]);
    expect((await to.attempts(id)).map(({ state }) => state)).toEqual(['dispatched']);
    expect(await misplaced(db)).toEqual([]);
  });
});

describe('a delivery that has ended at the new destination', () => {
  it('M5 is not restored by a move if it was cancelled there', async () => {
    const { from, to, id } = await waitsAtBoth();
    const other = await from.enqueueOne();
    await db.query(`SELECT ${db.quoted}.cancel($1, $2)`, [id, to.name]);
    expect(await move(from, to, db.pool)).toBe(2);
    expect(await deliverAll(to)).toEqual([other]);
    expect((await to.attempts(id)).map(({ state }) => state)).toEqual(['discarded']);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 is restored if it had only been moved away', async () => {
    const [here, there] = [await makeQueue(db), await makeQueue(db)];
    const id = await here.enqueueOne();
    expect(await move(here, there, db.pool)).toBe(1);
    expect(await move(there, here, db.pool)).toBe(1);
    expect(await deliverAll(here)).toEqual([id]);
    // once as moved away, and once as delivered
    expect((await here.attempts(id)).map(({ state }) => state)).toEqual([
      'discarded',
      'dispatched',
    ]);
  });
});

it('P2 whole keys are moved from their heads, including one that waits for its retry', async () => {
  const [from, to] = [await makeQueue(db), await makeQueue(db)];
  const [head = ''] = await from.enqueue(3, { key: 'k', namespace: from.name });
  const claim = await from.claim({ limit: 1 });
  await settle(db, claim, [{ id: head, outcome: 'retry', retryAfterMs: 3_600_000 }]);
  await from.enqueue(1, {});
  expect(await move(from, to, db.pool, 3)).toBe(3);
  const { rows } = await db.query<{ sequence: string | null }>(
    `SELECT sequence FROM ${db.quoted}.deliveries WHERE destination_id = $1 ORDER BY sequence NULLS FIRST`,
    [to.id],
  );
  expect(rows.map((row) => row.sequence)).toEqual([null, '1', '2']);
});
