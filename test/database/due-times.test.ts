// Due times that a producer gives itself (availableAt), above all in the past: an application that moves its old
// outbox, or writes rows with their own time, gets them delivered oldest first. Producers, workers, operators and
// readers connect with the login of their role.

import { describe, expect, it } from 'vitest';

import { createOutbox } from '../../src/producer/outbox.js';
import { defineDestination, addRoute } from '../support/destinations.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { releaseLease, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

const hoursAgo = (hours: number): string => new Date(Date.now() - hours * 3_600_000).toISOString();

/** What a worker with the role relay claims: the number in each payload, in the order of the claim. */
async function claimedBy(destination: string, limit = 100): Promise<number[]> {
  return as(db, 'test_relay', async (client) => {
    const { rows } = await client.query<{ payload: { seq: number } }>(
      `SELECT payload FROM ${db.quoted}.claim($1, gen_random_uuid(), $2)`,
      [destination, limit],
    );
    return rows.map((row) => row.payload.seq);
  });
}

async function ageOf(destination: string): Promise<{ load: number; health: number }> {
  return as(db, 'test_control', async (client) => {
    const load = await client.query<{ seconds: number }>(
      `SELECT oldest_due_seconds::float8 AS seconds FROM ${db.quoted}.destination_load WHERE name = $1`,
      [destination],
    );
    const health = await client.query<{ seconds: number }>(
      `SELECT value::float8 AS seconds FROM ${db.quoted}.health WHERE metric = 'oldest_waiting_seconds'`,
    );
    return { load: only(load.rows).seconds, health: only(health.rows).seconds };
  });
}

describe('order', () => {
  it.each(['enqueue', 'enqueue_many', 'TypeScript'])(
    'C12 C1 rows with their own time in the past are claimed oldest first, written by %s',
    async (how) => {
      const queue = await makeQueue(db);
      const messages = [
        { topic: queue.topic, payload: { seq: 3 }, availableAt: hoursAgo(1) },
        { topic: queue.topic, payload: { seq: 1 }, availableAt: hoursAgo(3) },
        { topic: queue.topic, payload: { seq: 2 }, availableAt: hoursAgo(2) },
        { topic: queue.topic, payload: { seq: 4 } },
      ];
      await as(db, 'test_producer', async (client) => {
        if (how === 'TypeScript') {
          const outbox = createOutbox({ schema: db.schema });
          await client.query('BEGIN');
          for (const { availableAt, ...message } of messages)
            await outbox.enqueue(client, {
              ...message,
              ...(availableAt === undefined ? {} : { availableAt: new Date(availableAt) }),
            });
          await client.query('COMMIT');
        } else if (how === 'enqueue_many') {
          await enqueueMany(db, client, messages);
        } else {
          for (const { topic, payload, availableAt } of messages)
            await client.query(`SELECT ${db.quoted}.enqueue($1, $2, available_at => $3)`, [
              topic,
              JSON.stringify(payload),
              availableAt,
            ]);
        }
      });
      expect(await claimedBy(queue.name, 10)).toEqual([1, 2, 3, 4]);
    },
  );

  it('C12 the id has the time of the enqueue, and the message keeps the time that was given', async () => {
    const queue = await makeQueue(db);
    const at = hoursAgo(24 * 365 * 30);
    const id = await queue.enqueueOne({ availableAt: at });
    const { rows } = await db.query(
      `SELECT ${db.quoted}.id_time(id) > now() - interval '1 minute' AS id_is_new, created_at > now() - interval '1 minute' AS is_new,
              available_at AS at FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    expect(only(rows)).toEqual({ id_is_new: true, is_new: true, at: new Date(at) });
  });

  it('C12 what a worker releases unsent keeps its place, at its own time', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(
      [4, 3, 2, 1].map((seq) => ({ payload: { seq }, availableAt: hoursAgo(5 - seq) })),
    );
    await releaseLease(db, await queue.claim({ limit: 2 }));
    expect(await claimedBy(queue.name)).toEqual([1, 2, 3, 4]);
  });

  it('C12 after a failed try it is due at its retry time, as any other', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({ availableAt: hoursAgo(3) });
    await settle(db, await queue.claim(), [{ id, outcome: 'retry', retryAfterMs: 60_000 }]);
    expect(only(await queue.waiting()).available_at.getTime()).toBeGreaterThan(Date.now() + 50_000);
  });

  it('C12 messages of a key stay in their sequence, whatever times they have', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll([
      { payload: { seq: 1 }, key: 'k', availableAt: hoursAgo(1) },
      { payload: { seq: 2 }, key: 'k', availableAt: hoursAgo(3) },
    ]);
    const { rows } = await queue.claim();
    expect(rows.map((row) => row.payload)).toEqual([{ seq: 1 }, { seq: 2 }]);
  });

  it('C12 messages that are routed later keep their own times, also by a replay', async () => {
    const topic = 'moved.late';
    const sent = await as(db, 'test_producer', (client) =>
      enqueueMany(db, client, [
        { topic, payload: { seq: 2 }, availableAt: hoursAgo(1) },
        { topic, payload: { seq: 4 } },
        { topic, payload: { seq: 1 }, availableAt: hoursAgo(3) },
        { topic, payload: { seq: 3 }, availableAt: hoursAgo(0.5) },
      ]),
    );
    const destinationId = await defineDestination(db, 'late');
    await db.query(`SELECT ${db.quoted}.bring_back($1, $2)`, [destinationId, [sent[3]?.id]]);
    await addRoute(db, destinationId, topic);
    await as(db, 'test_operator', (client) => client.query(`SELECT ${db.quoted}.route_unrouted()`));
    expect(await claimedBy('late')).toEqual([1, 2, 3, 4]);
  });

  it('C12 the correction of a wrong clock leaves a given time alone, also after a release', async () => {
    const queue = await makeQueue(db);
    const [past = '', future = ''] = await queue.enqueueAll([
      { availableAt: hoursAgo(3) },
      { availableAt: hoursAgo(-3) },
    ]);
    const times = async () =>
      new Map((await queue.waiting()).map((row) => [row.message_id, row.available_at.getTime()]));
    const before = await times();
    await as(db, 'test_relay', (client) => client.query(`SELECT ${db.quoted}.release_misdated()`));
    expect(await times()).toEqual(before);
    // claimed while the clock ran ahead, and released after the correction
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET available_at = now() WHERE message_id = $1`,
      [future],
    );
    await releaseLease(db, await queue.claim());
    await db.query(`SELECT ${db.quoted}.release_misdated()`);
    expect(await times()).toEqual(before);
    expect(before.get(past)).toBeLessThan(Date.now());
  });
});

describe('age', () => {
  it.each([
    ['without a key', {}],
    ['with a key', { key: 'k' }],
  ])('C12 N13 a due time years ago counts from the enqueue, %s', async (_, fields) => {
    const queue = await makeQueue(db);
    await queue.enqueueAll([
      { ...fields, availableAt: '1999-01-01T00:00:00Z' },
      { ...fields, availableAt: '1999-01-01T00:00:00Z' },
    ]);
    // the first one ends, so a lane becomes due at the time of its next message
    await settleDelivered(db, await queue.claim({ limit: 1 }));
    expect(await queue.waiting()).toHaveLength(1);
    const { load, health } = await ageOf(queue.name);
    expect(load).toBeLessThan(60);
    expect(health).toBeLessThan(60);
  });

  it.each([
    ['without a key', null],
    ['with a key', 'k'],
  ])('C12 N13 P14 it goes on counting from the enqueue, %s', async (_, key) => {
    const queue = await makeQueue(db);
    await queue.enqueue(2, { availableAt: '1999-01-01T00:00:00Z', ...(key && { key }) });
    await settleDelivered(db, await queue.claim({ limit: 1 }));
    const { rows } = await db.query<{ at: string }>(
      `UPDATE ${db.quoted}.deliveries SET message_id = ${db.quoted}.id_at(now() - interval '10 minutes')
        WHERE destination_id = $1 RETURNING delay_ms::text AS at`,
      [queue.id],
    );
    expect(rows).toEqual([{ at: '-1' }]);
    const { load } = await ageOf(queue.name);
    expect(load).toBeGreaterThanOrEqual(599);
    expect(load).toBeLessThan(700);
    await db.query(`DELETE FROM ${db.quoted}.deliveries WHERE destination_id = $1`, [queue.id]);
  });

  it('C12 P14 older messages that wait behind given times are not forgotten', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(1);
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET available_at = now() - interval '10 minutes' WHERE destination_id = $1`,
      [queue.id],
    );
    await queue.enqueue(100, { availableAt: '1999-01-01T00:00:00Z' });
    const { load } = await ageOf(queue.name);
    expect(load).toBeGreaterThanOrEqual(599);
    expect(load).toBeLessThan(700);
  });
});
