// Actions of operators, each with a record of the actor: cancel, replay, discard, retry now, pause, move.

import type pg from 'pg';
import { describe, expect, it } from 'vitest';

import { addRoute } from '../support/destinations.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Connection, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { releaseLease, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

async function call(sql: string, values: unknown[] = [], on: Connection = db.pool) {
  const { rows } = await on.query<{ count: number }>(`SELECT ${db.quoted}.${sql} AS count`, values);
  return only(rows).count;
}

/** The last entry of the audit. */
async function lastAction(): Promise<pg.QueryResultRow> {
  const { rows } = await db.query(
    `SELECT actor, action, subject, count::int FROM ${db.quoted}.operator_actions ORDER BY id DESC LIMIT 1`,
  );
  return only(rows);
}

async function countActions(): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.operator_actions`,
  );
  return only(rows).count;
}

async function states(queue: Queue, id: string): Promise<string[]> {
  return (await queue.attempts(id)).map((a) => `${a.claim_no} ${a.state} ${a.error_code}`);
}

describe('cancel', () => {
  it('M5 W5 a pending delivery is cancelled at one destination or at all, and recorded', async () => {
    const [one, two] = await Promise.all([makeQueue(db), makeQueue(db)]);
    await addRoute(db, two.id, one.topic);
    const [first = '', second = ''] = await one.enqueue(2);
    expect(await call('cancel($1, $2, $3)', [first, one.name, 'ann'])).toBe(1);
    expect(await lastAction()).toEqual({
      actor: 'ann',
      action: 'cancel',
      subject: { messageId: first, destination: one.name },
      count: 1,
    });
    expect(await one.status(first)).toMatchObject({ status: 'discarded', tries: 0 });
    expect(await two.status(first)).toMatchObject({ status: 'pending' });
    expect(await call('cancel($1)', [second])).toBe(2);
    expect(await states(two, second)).toEqual(['1 discarded cancelled']);
    expect((await one.claim()).ids).toEqual([]);
    expect((await two.claim()).ids).toEqual([first]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 a leased delivery is not cancelled, and the count says so', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    const claim = await queue.claim();
    const actions = await countActions();
    expect(await call('cancel($1)', [id])).toBe(0);
    expect(await countActions()).toBe(actions);
    await releaseLease(db, claim);
    expect(await call('cancel($1)', [id])).toBe(1);
    expect(await states(queue, id)).toEqual(['1 released null', '2 discarded cancelled']);
  });

  it('M5 a cancel that meets a claim in flight waits for it and then leaves the delivery alone', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    const [relay, operator] = await Promise.all([db.connect(), db.connect()]);
    await relay.query('BEGIN');
    const claim = await queue.claim({ on: relay });
    const backend = await backendId(operator);
    const cancelled = call('cancel($1)', [id], operator);
    await waitUntilBlocked(db, backend);
    await relay.query('COMMIT');
    expect(await cancelled).toBe(0);
    expect(await settleDelivered(db, claim)).toEqual({ settled: 1, lost: [] });
    expect(await queue.attempts(id)).toHaveLength(1);
  });
});

describe('dead letters', () => {
  it('M5 a retry is new work: claim numbers continue, tries start again, the earlier ending stays', async () => {
    const queue = await makeQueue(db, { maxAttempts: 2, retryBaseMs: 0, retryMaxMs: 0 });
    const id = await queue.enqueueOne();
    for (const errorCode of ['busy', 'busy']) {
      await settle(db, await queue.claimOne(), [{ id, outcome: 'retry', errorCode }]);
    }
    expect(await call(`retry_dead_letters($1, actor => 'ann')`, [queue.name])).toBe(1);
    expect(await lastAction()).toEqual({
      actor: 'ann',
      action: 'retry_dead_letters',
      subject: { destination: queue.name },
      count: 1,
    });
    expect(await queue.deadLetters()).toEqual([]);
    expect(await queue.status(id)).toMatchObject({
      status: 'pending',
      retrying: false,
      tries: 0,
      claim_no: 2,
    });
    const claim = await queue.claimOne();
    expect(claim.row).toMatchObject({ message_id: id, claim_no: 3, tries: 1 });
    await settleDelivered(db, claim);
    expect(await states(queue, id)).toEqual([
      '1 retryable busy',
      '2 failed busy',
      '3 dispatched null',
    ]);
    expect(await queue.status(id)).toMatchObject({ status: 'delivered', tries: 1 });
  });

  it('M5 W5 retry and discard take a filter, and leave the rest', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueueAll([
      { tenantId: 'a' },
      { tenantId: 'b' },
      { tenantId: 'b' },
      {},
    ]);
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      ids.map((id, n) => ({ id, outcome: 'reject', errorCode: n === 1 ? 'special' : 'usual' })),
    );
    const left = async (): Promise<unknown[]> =>
      (await queue.deadLetters()).map((row) => ids.indexOf(row['message_id'] as string));
    expect(await call(`retry_dead_letters($1, error_code => 'special')`, [queue.name])).toBe(1);
    expect(await left()).toEqual([0, 2, 3]);
    expect(await call(`discard_dead_letters($1, tenant_id => 'b')`, [queue.name])).toBe(1);
    expect(await left()).toEqual([0, 3]);
    expect(await call(`discard_dead_letters($1, topic => 'other')`, [queue.name])).toBe(0);
    expect(await call(`discard_dead_letters(dead_before => now() - interval '1 hour')`)).toBe(0);
    expect(await call(`retry_dead_letters(ids => $1)`, [[ids[3]]])).toBe(1);
    expect(await left()).toEqual([0]);
  });

  it('M5 a discard is final, recorded, and done in batches, oldest first', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(5);
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      ids.map((id) => ({ id, outcome: 'reject', errorCode: 'bad' })),
    );
    const discard = () => call(`discard_dead_letters($1, max_count => 2)`, [queue.name]);
    expect([await discard(), await discard(), await discard(), await discard()]).toEqual([
      2, 2, 1, 0,
    ]);
    expect(await lastAction()).toMatchObject({ action: 'discard_dead_letters', count: 1 });
    expect(await states(queue, ids[0] ?? '')).toEqual(['1 failed bad', '2 discarded bad']);
    expect(await queue.status(ids[0] ?? '')).toMatchObject({ status: 'discarded' });
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 two concurrent retries requeue a dead letter once', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await queue.kill(id);
    const [one, two] = await Promise.all([db.connect(), db.connect()]);
    await one.query('BEGIN');
    expect(await call('retry_dead_letters($1)', [queue.name], one)).toBe(1);
    const backend = await backendId(two);
    const second = call('retry_dead_letters($1)', [queue.name], two);
    await waitUntilBlocked(db, backend);
    await one.query('COMMIT');
    expect(await second).toBe(0);
    expect(await queue.waiting()).toHaveLength(1);
  });

  it.each(['retry', 'discard'])(
    'M5 of two concurrent operators the second continues where the first ends: %s',
    async (action) => {
      const queue = await makeQueue(db);
      for (const id of await queue.enqueue(4)) await queue.kill(id);
      const [one, two] = await Promise.all([db.connect(), db.connect()]);
      await one.query('BEGIN');
      expect(await call('retry_dead_letters($1, max_count => 2)', [queue.name], one)).toBe(2);
      const backend = await backendId(two);
      const second = call(`${action}_dead_letters($1, max_count => 2)`, [queue.name], two);
      await waitUntilBlocked(db, backend);
      await one.query('COMMIT');
      // fewer than the limit would mean that there are no more
      expect(await second).toBe(2);
      expect(await queue.deadLetters()).toEqual([]);
    },
  );

  it('M5 a dead letter whose message is missing can be discarded, but not retried', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [id]);
    await db.query(`SELECT * FROM ${db.quoted}.claim($1, gen_random_uuid())`, [queue.name]);
    expect(await queue.deadLetters()).toHaveLength(1);
    expect(await call('retry_dead_letters($1)', [queue.name])).toBe(0);
    expect(await call('discard_dead_letters($1)', [queue.name])).toBe(1);
  });
});

describe('the queue', () => {
  it('W5 everything that waits for a retry becomes due now, and nothing else', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 600_000, retryMaxMs: 600_000 });
    const [retried = '', delayed = ''] = await queue.enqueueAll([{}, { delayMs: 600_000 }]);
    await settle(db, await queue.claimOne(), [{ id: retried, outcome: 'retry' }]);
    expect((await queue.claim()).ids).toEqual([]);
    expect(await call('retry_now($1)', [queue.name])).toBe(1);
    expect(await lastAction()).toMatchObject({ action: 'retry_now', count: 1 });
    expect((await queue.claim()).ids).toEqual([retried]);
    expect((await queue.waiting()).map((row) => row.message_id)).toEqual([delayed]);
  });

  it('M5 pausing and resuming are recorded once each', async () => {
    const queue = await makeQueue(db);
    const actions = await countActions();
    const set = (paused: boolean) =>
      db.query(`SELECT ${db.quoted}.set_paused($1, $2, 'ann')`, [queue.name, paused]);
    await set(true);
    await set(true);
    expect(await lastAction()).toMatchObject({ actor: 'ann', action: 'pause' });
    await set(false);
    await set(false);
    expect(await lastAction()).toMatchObject({ actor: 'ann', action: 'resume' });
    expect(await countActions()).toBe(actions + 2);
  });

  it('M5 pending deliveries move to another destination, each once, and the old attempt ends', async () => {
    const [from, to] = await Promise.all([makeQueue(db), makeQueue(db)]);
    await addRoute(db, to.id, from.topic);
    const [both = ''] = await from.enqueue(1);
    await db.query(`DELETE FROM ${db.quoted}.routes WHERE destination_id = $1 AND topic = $2`, [
      to.id,
      from.topic,
    ]);
    const [only1 = ''] = await from.enqueue(1);
    await settleDelivered(db, await to.claim());
    expect(await call('move_deliveries($1, $2)', [from.name, to.name])).toBe(2);
    expect(await lastAction()).toMatchObject({
      action: 'move_deliveries',
      subject: { destination: from.name, to: to.name },
      count: 2,
    });
    expect(await from.waiting()).toEqual([]);
    expect((await to.claim()).ids).toEqual([only1]);
    expect(await states(from, both)).toEqual(['1 discarded moved']);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 pending deliveries are discarded in batches', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(3);
    const discard = () => call('discard_deliveries($1, 2)', [queue.name]);
    expect([await discard(), await discard(), await discard()]).toEqual([2, 1, 0]);
    expect(await states(queue, ids[2] ?? '')).toEqual(['1 discarded cancelled']);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M5 a move to the same destination loses nothing', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 600_000, retryMaxMs: 600_000 });
    const id = await queue.enqueueOne();
    await settle(db, await queue.claimOne(), [{ id, outcome: 'retry' }]);
    await call('move_deliveries($1, $1)', [queue.name]).catch(() => 0);
    expect(await queue.status(id)).toMatchObject({ status: 'pending', tries: 1 });
  });
});
