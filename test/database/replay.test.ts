// A replay sends past messages to a destination again: with the same ids and sequences, as new recorded work, at a
// rate, in steps that can be interrupted anywhere.

import { beforeAll, describe, expect, it } from 'vitest';

import { addRoute, defineDestination } from '../support/destinations.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { makeDead } from '../support/letters.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deliverAll, finish, planReplay, replay, startReplay, step } from '../support/replays.js';
import { releaseLease, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

async function actions(id: string): Promise<{ actor: string; action: string; count: number }[]> {
  const { rows } = await db.query<{ actor: string; action: string; count: number }>(
    `SELECT actor, action, count::int FROM ${db.quoted}.operator_actions WHERE subject ->> 'replay' = $1 ORDER BY id`,
    [id],
  );
  return rows;
}

describe('a replay', () => {
  it('M5 is new recorded work: attempt numbers continue, tries start again, the earlier ending stays', async () => {
    const queue = await makeQueue(db);
    const [first = '', second = ''] = await queue.enqueue(2);
    await deliverAll(db, queue);
    const { replay_id: id } = await startReplay(db, queue.name, { ids: [first], actor: 'ann' });
    expect(await finish(db, id)).toMatchObject({
      replayed: 1,
      waiting: 0,
      processing: 0,
      state: 'done',
    });
    expect(await queue.status(first)).toMatchObject({
      status: 'pending',
      tries: 0,
      claim_no: 1,
      retrying: false,
    });
    expect(await queue.status(second)).toMatchObject({ status: 'delivered' });
    expect(await misplaced(db)).toEqual([]);

    const claim = await queue.claimOne();
    expect(claim.row).toMatchObject({
      message_id: first,
      claim_no: 2,
      tries: 1,
      payload: { n: 1 },
    });
    expect(await queue.status(first)).toMatchObject({ status: 'processing', claim_no: 2 });
    await settleDelivered(db, claim);
    expect(await queue.status(first)).toMatchObject({ status: 'delivered', claim_no: 2 });
    expect((await queue.attempts(first)).map((a) => `${a.claim_no} ${a.tries} ${a.state}`)).toEqual(
      ['1 1 dispatched', '2 1 dispatched'],
    );
    expect(await actions(id)).toEqual([
      { actor: 'ann', action: 'start_replay', count: 0 },
      { actor: 'ann', action: 'replay', count: 1 },
    ]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 a message that dies after a replay is dead, and no longer delivered', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await deliverAll(db, queue);
    await replay(db, queue.name, { ids: [id] });
    await queue.kill(id);
    expect(await queue.status(id)).toMatchObject({ status: 'dead', claim_no: 2, tries: 1 });
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 pending and in-flight deliveries are skipped and counted, discarded ones come back', async () => {
    const queue = await makeQueue(db);
    const [held = '', delivered = '', discarded = '', waiting = ''] = await queue.enqueue(4);
    const one = await queue.claim({ limit: 1 });
    const two = await queue.claim({ limit: 1 });
    await settleDelivered(db, two);
    await db.query(`SELECT ${db.quoted}.cancel($1)`, [discarded]);
    expect(await replay(db, queue.name, { topic: queue.topic })).toMatchObject({
      replayed: 2,
      waiting: 1,
      processing: 1,
    });
    expect(one.ids).toEqual([held]);
    expect((await queue.waiting()).map((row) => [row.message_id, row.claim_no])).toEqual([
      [waiting, 0],
      [delivered, 1],
      [discarded, 1],
    ]);
    expect(await misplaced(db)).toEqual([]);
    await settleDelivered(db, one);
  });

  it('M5 a lease that settled a message and still holds another is no reason to skip it', async () => {
    const queue = await makeQueue(db);
    const [ended = '', held = ''] = await queue.enqueue(2);
    const claim = await queue.claim();
    await settle(db, claim, [{ id: ended, claimNo: 1 }]);
    expect(await replay(db, queue.name, { ids: [ended, held] })).toMatchObject({
      replayed: 1,
      processing: 1,
    });
    expect(await queue.status(ended)).toMatchObject({ status: 'pending' });
    await settle(db, claim, [{ id: held, claimNo: 1 }]);
    expect(await deliverAll(db, queue)).toEqual([ended]);
    expect(await misplaced(db)).toEqual([]);
  });

  it.each([
    ['continue', 2],
    ['block', 0],
    ['park', 0],
  ] as const)(
    'M5 a dead letter is retried, with what it blocks behind it (%s)',
    async (whenDead, goOn) => {
      const queue = await makeQueue(db, { whenDead });
      const [alone = ''] = await makeDead(queue, 1, 'no');
      const ids = await queue.enqueue(3, { key: 'k', namespace: queue.name });
      const claim = await queue.claim();
      await settle(
        db,
        claim,
        ids.map((id, n) => ({ id, outcome: n === 0 ? 'reject' : 'release', errorCode: 'no' })),
      );
      const behind = await queue.claim();
      expect(behind.ids).toHaveLength(goOn);
      await releaseLease(db, behind);
      // of the parked ones only the head is retried; they come back with it
      const done = await replay(db, queue.name, { since: '2020-01-01T00:00:00Z' });
      expect(done).toMatchObject({ replayed: 2, waiting: 2 });
      expect(await queue.deadLetters()).toEqual([]);
      expect((await deliverAll(db, queue)).toSorted()).toEqual([alone, ...ids].toSorted());
      expect(await misplaced(db)).toEqual([]);
    },
  );

  it('M5 filters by topic, pattern, namespace, tenant, key and time, and finds only what belongs to the destination', async () => {
    const name = 'finder';
    const queue = new Queue(db, name, await defineDestination(db, name));
    await addRoute(db, queue.id, 'find.*');
    const messages = [
      { topic: 'find.a', tenantId: 'acme' },
      { topic: 'find.b', tenantId: 'acme', key: 'k' },
      { topic: 'find.b', tenantId: 'other', key: 'k' },
      { topic: 'find.a', namespace: 'shop' },
      { topic: 'lost' },
    ];
    const ids: string[] = [];
    for (const message of messages) {
      ids.push(...(await queue.enqueueAll([message])));
      // times of ids have milliseconds
      await db.query('SELECT pg_sleep(0.003)');
    }
    await deliverAll(db, queue);
    const { rows } = await db.query<{ at: Date }>(`SELECT ${db.quoted}.id_time($1) AS at`, [
      ids[2],
    ]);
    const third = only(rows).at.toISOString();
    const found = async (fields: Parameters<typeof planReplay>[2]) => {
      await replay(db, name, { since: '2020-01-01T00:00:00Z', ...fields });
      return (await deliverAll(db, queue)).map((id) => ids.indexOf(id)).toSorted((a, b) => a - b);
    };
    expect(await found({})).toEqual([0, 1, 2, 3]);
    expect(await found({ topic: 'find.a' })).toEqual([0, 3]);
    expect(await found({ topic: 'find.*' })).toEqual([0, 1, 2, 3]);
    expect(await found({ topic: 'lost' })).toEqual([]);
    expect(await found({ namespace: 'shop' })).toEqual([3]);
    expect(await found({ tenant_id: 'acme' })).toEqual([0, 1]);
    expect(await found({ tenant_id: 'acme', topic: 'find.b' })).toEqual([1]);
    expect(await found({ key: 'k' })).toEqual([1, 2]);
    expect(await found({ key: 'k', tenant_id: 'other' })).toEqual([2]);
    expect(await found({ key: 'none' })).toEqual([]);
    expect(await found({ since: third })).toEqual([2, 3]);
    expect(await found({ until: third })).toEqual([0, 1]);
    expect(await found({ ids: [ids[1] ?? '', ids[4] ?? ''] })).toEqual([1]);

    // a removed route keeps what the destination has had
    await db.query(`DELETE FROM ${db.quoted}.routes WHERE destination_id = $1`, [queue.id]);
    expect(await found({})).toEqual([0, 1, 2, 3]);
  });

  it('M5 fills a new destination from history, and unrouted messages become routed', async () => {
    const queue = new Queue(db, 'late', await defineDestination(db, 'late'));
    const ids = await queue.enqueue(3, { key: 'late' });
    await addRoute(db, queue.id, 'late');
    const plan = await planReplay(db, 'late', { topic: 'late' });
    expect(plan).toMatchObject({
      messages: '3',
      is_exact: true,
      kept_since: null,
      expired: 0,
      unfinished: null,
    });
    expect(plan['sample']).toMatchObject([
      { messageId: ids[0], sequence: '1', key: 'late', status: 'new' },
      { messageId: ids[1], sequence: '2' },
      { messageId: ids[2], sequence: '3' },
    ]);
    expect(await replay(db, 'late', { topic: 'late' })).toMatchObject({ replayed: 3 });
    expect(await misplaced(db)).toEqual([]);
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.unrouted_messages WHERE message_id = ANY ($1)`,
      [ids],
    );
    expect(rows).toEqual([]);
    expect(await deliverAll(db, queue)).toEqual(ids);
    expect(await replay(db, 'late', { topic: 'late' })).toMatchObject({ replayed: 3 });
  });
});

describe('an unrouted message', () => {
  it('M5 is not replayed twice when it is routed at the same moment', async () => {
    const queue = new Queue(db, 'routed', await defineDestination(db, 'routed'));
    const ids = await queue.enqueue(2);
    await addRoute(db, queue.id, 'routed');
    const { replay_id: id } = await startReplay(db, 'routed', { topic: 'routed' });
    const [router, operator] = await Promise.all([db.connect(), db.connect()]);
    await router.query('BEGIN');
    await router.query(`SELECT ${db.quoted}.route_unrouted()`);
    const backend = await backendId(operator);
    const waiting = step(db, id, 10, operator);
    await waitUntilBlocked(db, backend);
    await router.query('COMMIT');
    expect(await waiting).toMatchObject({ replayed: 0, waiting: 2 });
    expect(await deliverAll(db, queue)).toEqual(ids);
    expect(await misplaced(db)).toEqual([]);
  });
});

describe('the steps of a replay', () => {
  let queue: Queue;
  let ids: string[];
  beforeAll(async () => {
    queue = await makeQueue(db);
    ids = await queue.enqueue(25);
    await deliverAll(db, queue);
  });

  it('M5 continue where the last one ended, with any caller, and replay nothing twice', async () => {
    const asked = { topic: queue.topic, since: '2026-01-01T00:00:00+00:00' };
    const { replay_id: id, resumed } = await startReplay(db, queue.name, asked);
    expect(resumed).toBe(false);
    expect(await step(db, id, 10)).toMatchObject({ replayed: 10, state: 'unfinished' });
    expect(await deliverAll(db, queue)).toEqual(ids.slice(0, 10));
    // a step that was interrupted before its commit has done nothing
    const killed = await db.connect();
    await killed.query('BEGIN');
    expect(await step(db, id, 10, killed)).toMatchObject({ replayed: 10 });
    await killed.end();
    expect(await planReplay(db, queue.name, asked)).toMatchObject({ unfinished: id });
    // the same request in other words
    expect(
      await startReplay(db, queue.name, { ...asked, since: '2026-01-01T02:00:00+02:00' }),
    ).toEqual({ replay_id: id, resumed: true });
    expect(await finish(db, id, 10)).toMatchObject({ replayed: 15, waiting: 0, state: 'done' });
    expect(await deliverAll(db, queue)).toEqual(ids.slice(10));
    expect(await step(db, id)).toMatchObject({ replayed: 0, state: 'done' });
    expect((await actions(id)).map(({ action, count }) => `${action} ${count}`)).toEqual([
      'start_replay 0',
      'resume_replay 0',
      'replay 25',
    ]);
    expect((await startReplay(db, queue.name, asked)).resumed).toBe(false);
    await deliverAll(db, queue);
  });

  it('M5 are serialized when called concurrently', async () => {
    const { replay_id: id } = await startReplay(db, queue.name, { topic: queue.topic });
    const [first, second] = await Promise.all([db.connect(), db.connect()]);
    await first.query('BEGIN');
    expect(await step(db, id, 10, first)).toMatchObject({ replayed: 10 });
    const backend = await backendId(second);
    const waiting = step(db, id, 10, second);
    await waitUntilBlocked(db, backend);
    await first.query('COMMIT');
    expect(await waiting).toMatchObject({ replayed: 10, waiting: 0 });
    expect(await finish(db, id, 10)).toMatchObject({ replayed: 5 });
    expect(await deliverAll(db, queue)).toEqual(ids);
  });

  it('M5 of two replays to one destination do not replay the same message twice', async () => {
    const one = await startReplay(db, queue.name, { ids });
    const two = await startReplay(db, queue.name, {
      topic: queue.topic,
      since: '2021-01-01T00:00:00Z',
    });
    const [first, second] = await Promise.all([db.connect(), db.connect()]);
    await first.query('BEGIN');
    expect(await step(db, one.replay_id, 100, first)).toMatchObject({ replayed: 25 });
    const backend = await backendId(second);
    const waiting = step(db, two.replay_id, 100, second);
    await waitUntilBlocked(db, backend);
    await first.query('COMMIT');
    expect(await waiting).toMatchObject({ replayed: 0, waiting: 25 });
    expect(await deliverAll(db, queue)).toEqual(ids);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 keep the rate, with any caller', async () => {
    const { replay_id: id } = await startReplay(db, queue.name, {
      topic: queue.topic,
      per_second: 20,
    });
    const first = await step(db, id);
    expect(first).toMatchObject({ replayed: 5, wait_ms: 250, state: 'unfinished' });
    const early = await step(db, id);
    expect(early).toMatchObject({ replayed: 0, state: 'unfinished' });
    expect(early.wait_ms).toBeGreaterThan(0);
    await db.query(`UPDATE ${db.quoted}.replays SET next_at = clock_timestamp() WHERE id = $1`, [
      id,
    ]);
    expect(await step(db, id)).toMatchObject({ replayed: 5 });
    // the clock was set back: the rate does not wait for it to come round again
    await db.query(
      `UPDATE ${db.quoted}.replays SET next_at = clock_timestamp() + interval '1 hour' WHERE id = $1`,
      [id],
    );
    expect(await step(db, id)).toMatchObject({ replayed: 5 });
    const { rows } = await db.query<{ cancelled: boolean }>(
      `SELECT ${db.quoted}.cancel_replay($1, 'ann') AS cancelled`,
      [id],
    );
    expect(only(rows).cancelled).toBe(true);
    expect(await step(db, id)).toMatchObject({ replayed: 0, state: 'cancelled' });
    expect((await actions(id)).at(-1)).toEqual({
      actor: 'ann',
      action: 'cancel_replay',
      count: 15,
    });
    await expect(db.query(`SELECT ${db.quoted}.resume_replay($1)`, [id])).rejects.toThrow(
      `replay_id is ${id}, and that replay is cancelled: start a new one`,
    );
    expect(await deliverAll(db, queue)).toEqual(ids.slice(0, 15));
  });

  it('M5 leave out messages that are enqueued after it began', async () => {
    const { replay_id: id } = await startReplay(db, queue.name, { topic: queue.topic });
    const later = await queue.enqueueOne();
    expect(await deliverAll(db, queue)).toEqual([later]);
    expect(await finish(db, id)).toMatchObject({ replayed: 25, waiting: 0 });
    expect(await deliverAll(db, queue)).toEqual(ids);
  });
});

describe('messages with a key', () => {
  it('M5 are replayed in sequence, before what is pending behind them, also in steps', async () => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    const key = { key: 'k', namespace: queue.name };
    const old = await queue.enqueue(6, key);
    expect(await deliverAll(db, queue)).toEqual(old);
    const waiting = await queue.enqueue(2, key);
    const { replay_id: id } = await startReplay(db, queue.name, {
      key: 'k',
      namespace: queue.name,
    });
    expect(await step(db, id, 4)).toMatchObject({ replayed: 4 });
    const claim = await queue.claim();
    expect(claim.rows.map((row) => [row.sequence, row.previous_sequence])).toEqual([
      ['1', null],
      ['2', null],
      ['3', null],
      ['4', null],
      ['7', '6'],
      ['8', '7'],
    ]);
    // while the key is held the rest of the replay waits
    expect(await finish(db, id, 4)).toMatchObject({ replayed: 2, processing: 2, waiting: 0 });
    expect((await queue.claim()).ids).toEqual([]);
    await settleDelivered(db, claim);
    expect(await deliverAll(db, queue)).toEqual(old.slice(4));
    expect(claim.ids).toEqual([...old.slice(0, 4), ...waiting]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 a replayed one that fails blocks its key, as a first delivery does', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(3, { key: 'k', namespace: queue.name });
    await deliverAll(db, queue);
    const { replay_id: id } = await startReplay(db, queue.name, {
      key: 'k',
      namespace: queue.name,
    });
    await step(db, id, 1);
    const claim = await queue.claimOne();
    await settle(db, claim, [
      { id: claim.id, outcome: 'retry', retryAfterMs: 3_600_000, errorCode: 'busy' },
    ]);
    expect(await finish(db, id)).toMatchObject({ replayed: 2 });
    expect((await queue.claim()).ids).toEqual([]);
    await queue.makeDue();
    expect(await deliverAll(db, queue)).toEqual(ids);
  });

  it.each([
    ['block', 'pending'],
    ['park', 'dead'],
  ] as const)('M5 a key that is blocked stays blocked (%s)', async (whenDead, status) => {
    const queue = await makeQueue(db, { whenDead });
    const key = { key: 'k', namespace: queue.name };
    const [first = ''] = await queue.enqueue(1, key);
    await deliverAll(db, queue);
    const [dead = ''] = await queue.enqueue(1, key);
    await queue.kill(dead);
    expect(await replay(db, queue.name, { ids: [first] })).toMatchObject({ replayed: 1 });
    expect((await queue.claim()).ids).toEqual([]);
    // parked, it is among the dead letters, and no longer delivered
    expect(await queue.status(first)).toMatchObject({ status });
    await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [queue.name]);
    expect(await deliverAll(db, queue)).toEqual([first, dead]);
    expect(await misplaced(db)).toEqual([]);
  });
});
