// The visible state: the public status of a message at each destination, the log of its attempts, and the overall
// health. Every (message, destination) is in exactly one place.

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { enqueueMany, makeQueue, misplaced } from '../support/outbox.js';
import { rewriteAttempts } from '../support/record.js';
import { testDatabase } from '../support/postgres.js';
import { expire, reap, releaseLease, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

const slowRetry = { retryBaseMs: 60_000, retryMaxMs: 60_000 };

async function health(): Promise<Map<string, number>> {
  const { rows } = await db.query<{ metric: string; value: string; description: string }>(
    `SELECT * FROM ${db.quoted}.health`,
  );
  for (const row of rows) expect(row.description).not.toBe('');
  return new Map(rows.map((row) => [row.metric, Number(row.value)]));
}

describe('the status', () => {
  it('M5 a new message is pending, with its fields and its due time', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({
      tenantId: 'acme',
      key: 'k',
      dedupeKey: 'acme/1',
      aggregateType: 'order',
      aggregateId: 'o-1',
    });
    const [waiting] = await queue.waiting();
    const status = await queue.status(id);
    expect(status).toMatchObject({
      message_id: id,
      destination: queue.name,
      status: 'pending',
      retrying: false,
      namespace: 'default',
      topic: queue.topic,
      tenant_id: 'acme',
      key: 'k',
      dedupe_key: 'acme/1',
      aggregate_type: 'order',
      aggregate_id: 'o-1',
      tries: 0,
      claim_no: 0,
      next_try_at: waiting?.available_at,
      locked_by: null,
      locked_until: null,
      last_error: null,
      last_error_code: null,
    });
    const { rows } = await db.query<{ created_at: Date }>(
      `SELECT created_at FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    const drift = (status['created_at'] as Date).getTime() - only(rows).created_at.getTime();
    expect(Math.abs(drift)).toBeLessThanOrEqual(50);
    expect(status['changed_at']).toEqual(status['created_at']);
  });

  it('M5 M9 processing shows the holder and the end of its lease', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    const claim = await queue.claim({ leaseMs: 45_000 });
    const status = await queue.status(id);
    expect(status).toMatchObject({
      status: 'processing',
      locked_by: claim.relayId,
      tries: 1,
      claim_no: 1,
      next_try_at: null,
    });
    const leaseMs =
      (status['locked_until'] as Date).getTime() - (status['changed_at'] as Date).getTime();
    expect(leaseMs).toBeGreaterThanOrEqual(45_000 - 1);
    expect(leaseMs).toBeLessThan(50_000);
  });

  it('M5 M10 retrying is pending with a failed try, its error and its next try, and no holder', async () => {
    const queue = await makeQueue(db, slowRetry);
    const id = await queue.enqueueOne();
    const claim = await queue.claim();
    await settle(db, claim, [
      { id, outcome: 'retry', errorCode: 'http_status', errorMessage: 'busy' },
    ]);
    const status = await queue.status(id);
    const [attempt] = await queue.attempts(id);
    expect(status).toMatchObject({
      status: 'pending',
      retrying: true,
      tries: 1,
      claim_no: 1,
      locked_by: null,
      locked_until: null,
      last_error_code: 'http_status',
      last_error: 'busy',
      changed_at: attempt?.ended_at,
    });
    const wait =
      (status['next_try_at'] as Date).getTime() - (status['changed_at'] as Date).getTime();
    expect(wait).toBeGreaterThanOrEqual(30_000 - 1);
    expect(wait).toBeLessThanOrEqual(60_000 + 1);
  });

  it('M5 delivered, dead and discarded are final, with their time and last error', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 0, retryMaxMs: 0 });
    const [delivered = '', dead = '', discarded = ''] = await queue.enqueue(3);
    await db.query(`SELECT ${db.quoted}.cancel($1)`, [discarded]);
    const first = await queue.claim();
    await settle(db, first, [
      { id: delivered, outcome: 'retry', errorCode: 'busy', errorMessage: 'first' },
      { id: dead, outcome: 'reject', errorCode: 'invalid', errorMessage: 'no' },
    ]);
    await settleDelivered(db, await queue.claim());
    const ended = async (id: string) => (await queue.attempts(id)).at(-1)?.ended_at;
    const final = { next_try_at: null, locked_by: null, locked_until: null };
    expect(await queue.status(delivered)).toMatchObject({
      ...final,
      status: 'delivered',
      tries: 2,
      last_error: 'first',
      changed_at: await ended(delivered),
    });
    expect(await queue.status(dead)).toMatchObject({
      ...final,
      status: 'dead',
      tries: 1,
      last_error: 'no',
      last_error_code: 'invalid',
      changed_at: await ended(dead),
    });
    expect(await queue.status(discarded)).toMatchObject({
      ...final,
      status: 'discarded',
      tries: 0,
      changed_at: await ended(discarded),
    });
    expect((await queue.claim()).ids).toEqual([]);
  });

  it('M5 a half-settled lease shows one half as ended, the other as processing', async () => {
    const queue = await makeQueue(db);
    const [a = '', b = ''] = await queue.enqueue(2);
    const claim = await queue.claim();
    await settle(db, claim, [{ id: a, claimNo: 1 }]);
    expect(await queue.status(a)).toMatchObject({ status: 'delivered' });
    expect(await queue.status(b)).toMatchObject({ status: 'processing' });
    await releaseLease(db, claim);
  });

  it('M5 a cancelled message shows as discarded, although its former batch is still in flight', async () => {
    const queue = await makeQueue(db, slowRetry);
    const [a = '', b = ''] = await queue.enqueue(2);
    const claim = await queue.claim();
    await settle(db, claim, [{ id: a, outcome: 'retry' }]);
    await db.query(`SELECT ${db.quoted}.cancel($1)`, [a]);
    expect(await queue.status(a)).toMatchObject({ status: 'discarded', claim_no: 2 });
    expect(await queue.status(b)).toMatchObject({ status: 'processing' });
    await releaseLease(db, claim);
  });
});

describe('the attempt log', () => {
  it('P4 P6 W8 shows every claim of a message, the one in flight as dispatching', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 0, retryMaxMs: 0 });
    const id = await queue.enqueueOne();
    await settle(db, await queue.claimOne(), [
      { id, outcome: 'retry', errorCode: 'busy', remoteCode: '503', latencyMs: 7 },
    ]);
    await expire(db, await queue.claimOne());
    await reap(db);
    const holder = await queue.claimOne();
    const { rows } = await db.query(
      `SELECT * FROM ${db.quoted}.attempt_log WHERE message_id = $1 ORDER BY claim_no`,
      [id],
    );
    const common = { message_id: id, destination: queue.name };
    expect(rows).toMatchObject([
      { ...common, claim_no: 1, state: 'retryable', remote_code: '503', latency_ms: 7 },
      { ...common, claim_no: 2, state: 'zombie_requeue', error_code: 'zombie' },
      { ...common, claim_no: 3, state: 'dispatching', relay_id: holder.relayId, ended_at: null },
    ]);
  });
});

describe('health', () => {
  it('N13 M13 counts what is pending, retrying, leased, dead and unrouted, and how long delivery takes', async () => {
    const before = await health();
    const queue = await makeQueue(db, slowRetry);
    const [delivered = '', retried = '', dead = '', ...others] = await queue.enqueue(6);
    await enqueueMany(db, db.pool, [{ topic: 'never.routed' }]);
    const claim = await queue.claim({ limit: 4 });
    await settle(db, claim, [
      { id: delivered, outcome: 'delivered' },
      { id: retried, outcome: 'retry' },
      { id: dead, outcome: 'reject' },
    ]);
    const after = await health();
    const change = (metric: string): number =>
      (after.get(metric) ?? Number.NaN) - (before.get(metric) ?? Number.NaN);
    expect(others).toHaveLength(3);
    expect({
      waiting: change('waiting'),
      retrying: change('retrying'),
      processing: change('processing'),
      dead: change('dead'),
      unrouted: change('unrouted'),
    }).toEqual({ waiting: 3, retrying: 1, processing: 1, dead: 1, unrouted: 1 });
    const average = after.get('average_delivery_ms') ?? -1;
    expect(average).toBeGreaterThan(0);
    expect(average).toBeLessThan(30_000);
    expect(after.get('partition_days_ahead')).toBe(60);
  });

  it('N13 P14 the age of the oldest pending delivery is how long it has been due', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(1);
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET available_at = now() - interval '2 minutes' WHERE destination_id = $1`,
      [queue.id],
    );
    const age = (await health()).get('oldest_waiting_seconds') ?? 0;
    expect(age).toBeGreaterThanOrEqual(119);
    expect(age).toBeLessThan(180);
  });

  it('N13 P14 the oldest delivery counts at a paused destination too, also with a key that no relay has seen', async () => {
    const [paused, other] = [await makeQueue(db), await makeQueue(db)];
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [paused.name]);
    await paused.enqueueAll(Array.from({ length: 20 }, (_, n) => ({ key: `key ${n % 7}` })));
    await other.enqueue(1);
    // as if they had been enqueued an hour ago
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET available_at = now() - interval '1 hour' WHERE destination_id = $1`,
      [paused.id],
    );
    const read = async () => {
      const values = await health();
      return [values.get('oldest_waiting_seconds'), values.get('oldest_paused_seconds')];
    };
    for (const age of await read()) {
      expect(age).toBeGreaterThanOrEqual(3600);
      expect(age).toBeLessThan(3700);
    }
    await db.query(`DELETE FROM ${db.quoted}.samples`);
    await db.query(`SELECT ${db.quoted}.take_sample()`);
    const { rows } = await db.query<{ age: number }>(
      `SELECT oldest_seconds::float8 AS age FROM ${db.quoted}.samples`,
    );
    expect(only(rows).age).toBeGreaterThanOrEqual(3600);
    // keys that a dead letter blocks do not count, as keys that a relay has seen
    await db.query(
      `INSERT INTO ${db.quoted}.lanes (destination_id, key_id, blocked_by, namespace)
       SELECT DISTINCT d.destination_id, d.key_id, '01890000-0000-7000-8000-000000000000'::uuid, 'default' FROM ${db.quoted}.deliveries d WHERE d.destination_id = $1`,
      [paused.id],
    );
    expect((await read())[1]).toBe(0);
    await db.query(`DELETE FROM ${db.quoted}.lanes WHERE destination_id = $1`, [paused.id]);
    await db.query(`SELECT ${db.quoted}.set_paused($1, false)`, [paused.name]);
  });

  it('M5 P6 every message is in exactly one place, and the checker notices if not', async () => {
    expect(await misplaced(db)).toEqual([]);
    const queue = await makeQueue(db);
    const [lost = '', doubled = ''] = await queue.enqueue(2);
    await settleDelivered(db, await queue.claim({ limit: 1 }));
    await rewriteAttempts(db, `DELETE FROM ${db.quoted}.attempts WHERE message_id = $1`, [lost]);
    await db.query(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       VALUES ($1, $2, 1, 1, 'dispatched', now())`,
      [doubled, queue.id],
    );
    const found = await misplaced(db);
    expect(found.map((row) => row['message_id'] as string).toSorted()).toEqual(
      [lost, doubled].toSorted(),
    );
  });
});

it('M5 the status query of a small outbox is too cheap for JIT compilation', async () => {
  const { rows } = await db.query<{ 'QUERY PLAN': [{ Plan: { 'Total Cost': number } }] }>(
    `EXPLAIN (FORMAT json) SELECT * FROM ${db.quoted}.message_status`,
  );
  const [{ Plan: plan }] = only(rows)['QUERY PLAN'];
  // above this cost PostgreSQL compiles a query by default: some thousand functions, for this one
  expect(plan['Total Cost']).toBeLessThan(100_000);
});
