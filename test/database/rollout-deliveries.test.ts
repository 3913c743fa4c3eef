// Deliveries of split routes: messages of a rollout are divided apart from all others, and none is lost when a route
// changes while its rollout decides.

import { describe, expect, it } from 'vitest';

import { createOutbox } from '../../src/producer/outbox.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { testDatabase } from '../support/postgres.js';
import { Rollouts } from '../support/rollouts.js';

const db = testDatabase();
const rollouts = new Rollouts(db);
const outbox = createOutbox({ schema: db.schema });

async function enqueue(messages: { topic: string; key?: string; tenantId?: string }[]) {
  return db.inTransaction((client) => outbox.enqueueMany(client, messages));
}

function copies(count: number, topic: string): { topic: string }[] {
  return Array.from({ length: count }, () => ({ topic }));
}

async function unrouted(): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.unrouted_messages`,
  );
  return rows[0]?.count ?? -1;
}

/** Makes the route of this topic a route that Waybill sends completely. */
async function unsplit(topic: string): Promise<void> {
  await db.query(`UPDATE ${db.quoted}.routes SET split_by = NULL WHERE topic = $1`, [topic]);
}

describe('split routes', () => {
  it('W6 a batch divides only the messages of its split routes, each as a single message would be', async () => {
    await rollouts.define('divided');
    await rollouts.define('whole', null);
    await rollouts.set('divided', 30);
    const keys = Array.from({ length: 60 }, (_, n) => `key-${n}`);
    const batch = keys.flatMap((key, n) => [
      { topic: 'divided', key, ...(n % 3 === 0 && { tenantId: 'acme' }) },
      { topic: 'whole', key },
    ]);
    const enqueued = await enqueue(batch);
    const ids = (topic: string) =>
      enqueued.flatMap(({ id }, n) => (batch[n]?.topic === topic ? [id] : []));
    expect(await rollouts.routedTo('whole')).toEqual(new Set(ids('whole')));
    const inBatch = await rollouts.routedTo('divided');
    const sent = keys.filter((_, n) => inBatch.has(ids('divided')[n] ?? ''));
    expect(sent.length).toBeGreaterThan(5);
    expect(sent.length).toBeLessThan(40);
    expect(inBatch.size).toBe(sent.length);
    for (const key of keys) {
      const [single] = await enqueue([{ topic: 'divided', key }]);
      const isSent = (await rollouts.routedTo('divided')).has(single?.id ?? '');
      expect(isSent, key).toBe(sent.includes(key));
    }
    expect(await unrouted()).toBe(0);
  });

  it('W6 a full route keeps all messages, and the shadow of a rollout beside it gets them too', async () => {
    await rollouts.define('shadowed');
    await rollouts.set('shadowed', 0, true);
    await db.query(
      `INSERT INTO ${db.quoted}.routes (destination_id, topic)
       SELECT id, 'shadowed' FROM ${db.quoted}.destinations WHERE name = 'shadowed'`,
    );
    for (const count of [1, 2]) {
      const ids = (await enqueue(copies(count, 'shadowed'))).map(({ id }) => id);
      for (const destination of ['shadowed', 'shadowed.shadow'])
        expect([...(await rollouts.routedTo(destination))]).toEqual(expect.arrayContaining(ids));
    }
    await db.query(`DELETE FROM ${db.quoted}.routes WHERE topic = 'shadowed' AND split_by IS NULL`);
  });

  it.each([1, 2])(
    'W6 %i messages whose route leaves its rollout while they wait for the decision are sent',
    async (count) => {
      const name = `leaving-${count}`;
      await rollouts.define(name);
      await rollouts.set(name, 100);
      const operator = await db.connect();
      await operator.query('BEGIN');
      await operator.query(`LOCK TABLE ${db.quoted}.rollout_decisions IN EXCLUSIVE MODE`);
      const producer = await db.connect();
      await producer.query('BEGIN');
      const backend = await backendId(producer);
      const enqueued = outbox.enqueueMany(producer, copies(count, name));
      await waitUntilBlocked(db, backend);
      await unsplit(name);
      await operator.query('COMMIT');
      const ids = (await enqueued).map(({ id }) => id);
      await producer.query('COMMIT');
      expect(await rollouts.routedTo(name)).toEqual(new Set(ids));
    },
  );
});

it('W6 deliveries follow the routes that enqueue has read, even if they are gone by now', async () => {
  await rollouts.define('gone');
  const [message] = await enqueue([{ topic: 'gone' }]);
  expect(await rollouts.routedTo('gone')).toEqual(new Set());
  await rollouts.set('gone', 100);
  await db.query(`DELETE FROM ${db.quoted}.routes WHERE topic = 'gone'`);
  await db.inTransaction(async (client) => {
    // as inside of enqueue_many
    await client.query(`SET LOCAL search_path = ${db.quoted}, pg_temp`);
    await client.query(
      `SELECT add_split_deliveries(ARRAY[m], ARRAY[now()], ARRAY[NULL::bigint], jsonb_build_array(
         split_kind(m.namespace, m.topic, m.tenant_id, ARRAY[d.id], ARRAY['gone'])))
         FROM messages m, destinations d WHERE m.id = $1 AND d.name = 'gone'`,
      [message?.id],
    );
  });
  expect(await rollouts.routedTo('gone')).toEqual(new Set([message?.id]));
});

it('W6 a message without a split route takes no lock of rollouts', async () => {
  await rollouts.define('free', null);
  const operator = await db.connect();
  await operator.query('BEGIN');
  await operator.query(`LOCK TABLE ${db.quoted}.rollouts, ${db.quoted}.rollout_decisions`);
  const ids = [
    ...(await enqueue([{ topic: 'free' }])),
    ...(await enqueue([{ topic: 'free' }, { topic: 'free' }])),
  ];
  await operator.query('ROLLBACK');
  expect(await rollouts.routedTo('free')).toEqual(new Set(ids.map(({ id }) => id)));
});
