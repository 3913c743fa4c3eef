// The races between a message and a lane that becomes idle, each with real connections and in the one order that could
// go wrong. A process that checks a lane first takes its lock, and reads only after that.

import type pg from 'pg';
import { expect, it } from 'vitest';

import { defineDestination } from '../support/destinations.js';
import { listen } from '../support/listeners.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import { deliverLease, releaseLease, settle, settleDelivered } from '../support/settling.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

const message = (queue: Queue) => ({ topic: queue.topic, key: 'k', namespace: queue.name });

async function tickets(queue: Queue): Promise<number> {
  const { rows } = await db.query(
    `SELECT FROM ${db.quoted}.lane_tickets WHERE destination_id = $1`,
    [queue.id],
  );
  return rows.length;
}

async function begun(): Promise<pg.Client> {
  const client = await db.connect();
  await client.query('BEGIN');
  return client;
}

it('P2 a ticket is not consumed while a settle holds the lane, because the settle may not have seen the message', async () => {
  const queue = await makeQueue(db);
  await enqueueMany(db, db.pool, [message(queue)]);
  const claim = await queue.claim();
  const settler = await begun();
  // it has checked the lane, which becomes idle when this commits
  await settleDelivered(db, claim, settler);
  await enqueueMany(db, db.pool, [message(queue)]);
  expect((await queue.claim()).ids).toEqual([]);
  expect(await tickets(queue)).toBe(1);
  await settler.query('COMMIT');
  expect((await queue.claim()).rows).toMatchObject([{ sequence: '2' }]);
  expect(await tickets(queue)).toBe(0);
});

it.each([['settle'], ['deliver_leases']])(
  'P2 a %s that had to wait for the lane sees what was committed meanwhile',
  async (how) => {
    const queue = await makeQueue(db);
    await enqueueMany(db, db.pool, [message(queue)]);
    const claim = await queue.claim();
    await db.query(`SELECT ${db.quoted}.recheck_lanes(ARRAY[$1]::int[], ARRAY[$2]::bigint[])`, [
      queue.id,
      claim.rows[0]?.key_id,
    ]);
    const eater = await begun();
    // a second relay locks the lane for a ticket, while the lane is empty
    expect((await queue.claim({ on: eater })).ids).toEqual([]);
    const settler = await db.connect();
    const waiter = await backendId(settler);
    const settling =
      how === 'settle'
        ? settleDelivered(db, claim, settler)
        : deliverLease(db, claim, { on: settler });
    await waitUntilBlocked(db, waiter);
    // the next message comes, and the relay that holds the lane consumes its ticket
    await enqueueMany(db, db.pool, [message(queue)]);
    expect((await queue.claim({ on: eater })).ids).toEqual([]);
    await eater.query('COMMIT');
    await settling;
    expect(await tickets(queue)).toBe(0);
    expect((await queue.claim()).rows).toMatchObject([{ sequence: '2' }]);
  },
);

it('P2 a message committed while a claim makes the lane idle is found by its ticket', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await queue.enqueueAll([message(queue)]);
  await releaseLease(db, await queue.claim());
  await db.query(`SELECT ${db.quoted}.cancel($1)`, [id]);
  const producer = await begun();
  await enqueueMany(db, producer, [message(queue)]);
  // the lane is due and empty: this claim makes it idle, without having seen the producer's message
  const relay = await begun();
  expect((await queue.claim({ on: relay })).ids).toEqual([]);
  await producer.query('COMMIT');
  expect((await queue.claim()).ids, 'the lane is still locked').toEqual([]);
  await relay.query('COMMIT');
  expect((await queue.claim()).rows).toMatchObject([{ sequence: '2' }]);
});

it('P2 of two relays that create the same lane at once, only one claims its messages', async () => {
  const queue = await makeQueue(db);
  await enqueueMany(db, db.pool, [message(queue)]);
  const first = await begun();
  const claim = await queue.claim({ on: first });
  expect(claim.rows).toMatchObject([{ sequence: '1' }]);
  await enqueueMany(db, db.pool, [message(queue)]);
  expect((await queue.claim()).ids, 'it does not wait').toEqual([]);
  await first.query('COMMIT');
  expect((await queue.claim()).ids).toEqual([]);
  await settleDelivered(db, claim);
  expect((await queue.claim()).rows).toMatchObject([{ sequence: '2' }]);
});

it.each(['none', 'tenant'] as const)(
  'P2 a claim whose transaction stays open does not block new keys of its destination, fairness %s',
  async (fairness) => {
    const queue = await makeQueue(db, { fairness });
    const of = (key: string) => ({ ...message(queue), key });
    await enqueueMany(db, db.pool, [of('a'), of('b')]);
    const open = await begun();
    const held = await queue.claim({ on: open });
    expect(held.rows).toMatchObject([{ key: 'a' }, { key: 'b' }]);
    await enqueueMany(db, db.pool, [{ topic: queue.topic }, of('b'), of('c'), of('d')]);
    const other = await queue.claim();
    expect(other.rows.map(({ key }) => key ?? '').toSorted()).toEqual(['', 'c', 'd']);
    await open.query('ROLLBACK');
    expect((await queue.claim()).rows).toMatchObject([
      { key: 'a', sequence: '1' },
      { key: 'b', sequence: '1' },
      { key: 'b', sequence: '2' },
    ]);
    expect(await tickets(queue)).toBe(0);
  },
);

it('P2 a ticket whose message was cancelled makes no lane', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await queue.enqueueAll([message(queue)]);
  await db.query(`SELECT ${db.quoted}.cancel($1)`, [id]);
  expect((await queue.claim()).ids).toEqual([]);
  expect(await tickets(queue)).toBe(0);
  await enqueueMany(db, db.pool, [message(queue)]);
  expect((await queue.claim()).rows).toMatchObject([{ sequence: '2' }]);
});

it('P2 a head that an operator is changing blocks what is behind it', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await queue.enqueueAll([message(queue), message(queue)]);
  const operator = await begun();
  await operator.query(`SELECT ${db.quoted}.cancel($1)`, [id]);
  expect((await queue.claim()).ids).toEqual([]);
  await operator.query('ROLLBACK');
  expect((await queue.claim()).rows).toMatchObject([{ sequence: '1' }, { sequence: '2' }]);
});

it('P2 a message parked while an operator unblocks the lane comes back too', async () => {
  const queue = await makeQueue(db, { whenDead: 'park' });
  const [id = ''] = await queue.enqueueAll([message(queue)]);
  await queue.kill(id);
  await enqueueMany(db, db.pool, [message(queue)]);
  const relay = await begun();
  expect((await queue.claim({ on: relay })).ids, 'this parks it').toEqual([]);
  const operator = await db.connect();
  const waiter = await backendId(operator);
  const skipping = operator.query(`SELECT ${db.quoted}.skip_dead_letters($1, $2)`, [
    queue.name,
    [id],
  ]);
  await waitUntilBlocked(db, waiter);
  await relay.query('COMMIT');
  await skipping;
  expect((await queue.claim()).rows).toMatchObject([{ sequence: '2', previous_sequence: '1' }]);
});

// switching fairness on waits for no lock
it.each<[string, number, 'none' | 'tenant', boolean]>([
  ['lowers maxAttempts', 1, 'none', true],
  ['switches fairness on', 10, 'tenant', false],
])(
  'P2 a definition that %s does not deadlock with a settle that parks',
  async (_what, maxAttempts, fairness, waits) => {
    const queue = await makeQueue(db, { whenDead: 'park' });
    const [head = '', next = ''] = await queue.enqueueAll([message(queue), message(queue)]);
    await settle(db, await queue.claim(), [
      { id: head, outcome: 'release' },
      { id: next, outcome: 'retry', retryAfterMs: 0 },
    ]);
    const claim = await queue.claim({ limit: 1 });
    expect(claim.ids).toEqual([head]);
    const [blocker, settler, definer] = [await begun(), await db.connect(), await db.connect()];
    await blocker.query(`SELECT FROM ${db.quoted}.lanes WHERE destination_id = $1 FOR UPDATE`, [
      queue.id,
    ]);
    const [settles, defines] = [await backendId(settler), await backendId(definer)];
    // the settle is the next to lock the lane, and then needs its deliveries
    const settling = settle(db, claim, [{ id: head, outcome: 'reject' }], settler);
    await waitUntilBlocked(db, settles);
    const definition = { maxAttempts, whenDead: 'park', fairness } as const;
    const defining = defineDestination(db, queue.name, definition, definer);
    await (waits ? waitUntilBlocked(db, defines) : defining);
    await blocker.query('COMMIT');
    expect((await settling).settled).toBe(1);
    await defining;
    const letters = await queue.deadLetters();
    expect(letters.map((letter) => `${letter['sequence']} ${letter['reason']}`)).toEqual([
      '1 rejected',
      '2 parked',
    ]);
  },
);

it('P2 the tickets of a locked lane do not hide those of others', async () => {
  const queue = await makeQueue(db);
  await enqueueMany(db, db.pool, [message(queue)]);
  await settleDelivered(db, await queue.claim());
  await enqueueMany(db, db.pool, [message(queue)]);
  const holder = await begun();
  expect((await queue.claim({ on: holder })).ids).toHaveLength(1);
  for (let n = 0; n < 41; n += 1) await enqueueMany(db, db.pool, [message(queue)]);
  await enqueueMany(db, db.pool, [{ topic: queue.topic, key: 'other', namespace: queue.name }]);
  expect((await queue.claim({ limit: 10 })).rows.map((row) => row.key)).toEqual(['other']);
  await holder.query('ROLLBACK');
});

it('P2 P7 freeing a lane with pending deliveries sends a notification', async () => {
  const queue = await makeQueue(db);
  await db.query(
    `SELECT ${db.quoted}.register_listener(gen_random_uuid(), ARRAY[$1::int], 0, 60000)`,
    [queue.id],
  );
  await enqueueMany(db, db.pool, [message(queue)]);
  const whole = await queue.claim();
  await enqueueMany(db, db.pool, [message(queue), message(queue)]);
  const wakeUps = await listen(db);
  await deliverLease(db, whole);
  await wakeUps.heardAll();
  expect(wakeUps.notifications, 'a whole lease').toEqual([String(queue.id)]);
  const part = await queue.claim({ limit: 1 });
  await settleDelivered(db, part);
  await wakeUps.heardAll();
  expect(wakeUps.notifications, 'by settle').toEqual([String(queue.id), String(queue.id)]);
  await settleDelivered(db, await queue.claim());
  await wakeUps.heardAll();
  expect(wakeUps.notifications, 'nothing is pending').toHaveLength(2);
});
