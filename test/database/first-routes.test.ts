// The first routes of an application also route earlier messages, oldest first and in order for each key, whatever
// producers do at the same time.

import { describe, expect, it } from 'vitest';

import { applyDefinitions, syncDefinitions } from '../../src/features/applications/database.js';
import type { Declaration } from '../../src/features/applications/database.js';
import { handler } from '../../src/destinations/handler.js';
import { definitionsOf } from '../../src/relay/setup.js';
import { only } from '../support/only.js';
import { enqueueMany, misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  makeRelay,
  numbered,
  openDatabase,
  send,
  startRelay,
  untilEnded,
} from '../support/relay.js';
import { randomUUID } from 'node:crypto';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ eachTestFrom: async () => {} });

function declaration(name: string, ...topics: string[]): Declaration {
  const destination = `${name}-sink`;
  return {
    application: { name, version: null },
    definitions: definitionsOf({
      destinations: { [destination]: handler(() => undefined) },
      routes: topics.map((topic) => ({ topic, to: destination })),
    }),
  };
}

const apply = (given: Declaration) =>
  applyDefinitions(openDatabase(db), given, { prune: false, dryRun: false, actor: 'test' });

async function unrouted(): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.unrouted_messages`,
  );
  return only(rows).count;
}

/** The pending messages of a destination, in claim order. */
async function waiting(destination: string): Promise<string[]> {
  const { rows } = await db.query<{ message_id: string }>(
    `SELECT d.message_id FROM ${db.quoted}.deliveries d JOIN ${db.quoted}.destinations t ON t.id = d.destination_id
      WHERE t.name = $1 ORDER BY d.available_at, d.message_id`,
    [destination],
  );
  return rows.map((row) => row.message_id);
}

describe('the first definitions of an application', () => {
  it('W7 M3 route what was enqueued before, oldest first', async () => {
    const early = await send(db, numbered('orders', 5000));
    await send(db, numbered('others', 10));
    expect(await unrouted()).toBe(5010);
    await apply(declaration('shop', 'orders'));
    expect(await unrouted()).toBe(10);
    expect(await waiting('shop-sink')).toEqual(early);
    expect(await misplaced(db)).toEqual([]);
  });

  it('W7 a relay that starts for the first time, and a drain, deliver it', async () => {
    await send(db, [...numbered('orders', 3), ...numbered('bills', 2)]);
    await startRelay(db, {
      application: 'shop',
      destinations: { orders: handler(() => undefined) },
    });
    await untilEnded(db, 'orders');
    const { relay } = makeRelay(db, {
      application: 'billing',
      destinations: { bills: handler(() => undefined) },
    });
    expect(await relay.drain({ maxMs: 10_000, maxMessages: 10 })).toMatchObject({ succeeded: 2 });
    expect(await unrouted()).toBe(0);
  });

  it('W7 the first routes in SQL do the same', async () => {
    const early = await send(db, numbered('work', 3));
    await db.query(`SELECT ${db.quoted}.define_destination('worker')`);
    await db.query(`SELECT ${db.quoted}.define_route('work', 'worker')`);
    expect(await waiting('worker')).toEqual(early);
  });

  it('W7 later routes of the same application route no earlier messages; an operator decides that', async () => {
    await apply(declaration('shop', 'orders'));
    await send(db, numbered('bills', 2));
    await apply(declaration('shop', 'orders', 'bills'));
    expect(await unrouted()).toBe(2);
  });

  it('W7 messages older than seven days stay unrouted', async () => {
    await enqueueMany(db, db.pool, [{ topic: 'orders' }, { topic: 'orders' }]);
    const { rows } = await db.query<{ id: string }>(
      `SELECT ${db.quoted}.id_at(now() - interval '7 days 1 hour') AS id`,
    );
    await db.query(
      `UPDATE ${db.quoted}.unrouted_messages SET message_id = $1
        WHERE message_id = (SELECT min(message_id::text)::uuid FROM ${db.quoted}.unrouted_messages)`,
      [only(rows).id],
    );
    await apply(declaration('shop', 'orders'));
    expect(await unrouted()).toBe(1);
    expect(await waiting('shop-sink')).toHaveLength(1);
  });

  it('W7 C12 keep the time of a delayed message, by delay and by date, in the past too', async () => {
    const day = 86_400_000;
    const at = new Date(Date.now() + day);
    await send(db, [{ topic: 'orders', payload: 'alone', delayMs: day }]);
    await send(db, [
      { topic: 'orders', payload: 'by date', availableAt: at },
      { topic: 'orders', payload: 'past', availableAt: new Date(Date.now() - day) },
      { topic: 'orders', payload: 'none' },
    ]);
    await apply(declaration('shop', 'orders'));
    const { rows } = await db.query<{ payload: string; inMs: number; delay: string | null }>(
      `SELECT m.payload, extract(epoch FROM d.available_at - now())::float * 1000 AS "inMs", d.delay_ms AS delay
         FROM ${db.quoted}.deliveries d JOIN ${db.quoted}.messages m ON m.id = d.message_id ORDER BY m.id`,
    );
    const inDays = rows.map(({ inMs, ...row }) => ({ ...row, days: Math.round(inMs / day) + 0 }));
    expect(inDays).toEqual([
      { payload: 'alone', days: 1, delay: String(day) },
      { payload: 'by date', days: 1, delay: '-1' },
      { payload: 'past', days: -1, delay: '-1' },
      { payload: 'none', days: 0, delay: null },
    ]);
  });

  it('C4 after the clock stepped back, a batch includes the earlier messages of its keys', async () => {
    await sendBehindOfClock();
    await db.query(`SELECT ${db.quoted}.route_earlier($1, 'shop', NULL, 2)`, [
      JSON.stringify(declaration('shop', 'orders').definitions),
    ]);
    expect(await sequences('shop-sink')).toEqual(['1', '2', null]);
    expect(await unrouted()).toBe(2);
  });

  it('W7 continue after a crash in the middle', async () => {
    const early = await send(db, numbered('orders', 30));
    const given = declaration('shop', 'orders');
    await db.query(`SELECT ${db.quoted}.route_earlier($1, 'shop', NULL, 10)`, [
      JSON.stringify(given.definitions),
    ]);
    expect(await unrouted()).toBe(20);
    await syncDefinitions(openDatabase(db), given, { id: randomUUID() }, 'test');
    expect((await waiting('shop-sink')).toSorted()).toEqual(early);
  });
});

describe('producers at the same moment', () => {
  it('C4 a message of an open transaction is in order with later ones', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.enqueue('orders', '1', key => 'k')`);
    const applied = apply(declaration('shop', 'orders'));
    await untilBlocked();
    await client.query('COMMIT');
    await applied;
    await enqueueMany(db, db.pool, [{ topic: 'orders', key: 'k' }]);
    expect(await unrouted()).toBe(0);
    expect(await sequences('shop-sink')).toEqual(['1', '2']);
  });

  it('M3 a starting relay waits for an open transaction, says so, and continues when it ends', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.enqueue('others')`);
    const made = makeRelay(db, {
      application: 'shop',
      destinations: { orders: handler(() => undefined) },
    });
    const started = made.relay.start();
    expect(await made.event('database_unavailable')).toMatchObject({
      error: expect.stringContaining('is still open') as string,
    });
    await client.query('COMMIT');
    await started;
    await send(db, numbered('orders', 1));
    await untilEnded(db, 'orders');
    await made.stop();
  });

  it('M3 a stop ends that wait', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.enqueue('others')`);
    const made = makeRelay(db, {
      application: 'shop',
      destinations: { orders: handler(() => undefined) },
    });
    const started = made.relay.start();
    await made.event('database_unavailable');
    await Promise.all([expect(started).rejects.toThrow('was stopped'), made.stop()]);
    await client.query('ROLLBACK');
  });

  it('C4 one that has found no route waits for the routes, and uses them', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`LOCK TABLE ${db.quoted}.unrouted_messages IN SHARE ROW EXCLUSIVE MODE`);
    const enqueued = enqueueMany(db, db.pool, [{ topic: 'orders', key: 'k' }]);
    await untilBlocked();
    await client.query(`SELECT ${db.quoted}.apply_definitions($1, 'shop')`, [
      JSON.stringify(declaration('shop', 'orders').definitions),
    ]);
    await client.query('COMMIT');
    await enqueued;
    expect(await unrouted()).toBe(0);
    expect(await sequences('shop-sink')).toEqual(['1']);
    expect(await misplaced(db)).toEqual([]);
  });

  it('C4 one with a single snapshot fails, and uses the routes when it tries again', async () => {
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await client.query('SELECT 1');
    await apply(declaration('shop', 'orders'));
    await expect(client.query(`SELECT ${db.quoted}.enqueue('orders')`)).rejects.toMatchObject({
      code: '40001',
    });
    await client.query('ROLLBACK');
  });

  it('C4 under load, every key keeps its order and no message is left', async () => {
    const stopping = new AbortController();
    let sent = 0;
    const produce = async (producer: number) => {
      while (!stopping.signal.aborted) {
        await enqueueMany(db, db.pool, [
          { topic: 'orders', key: `k${sent % 7}`, payload: producer },
          { topic: 'orders', key: `k${producer}` },
        ]);
        sent += 2;
      }
    };
    const producing = Promise.all([1, 2, 3, 4].map(produce));
    await waitFor(() => sent > 300, { what: 'messages before the routes' });
    const order = new Map<string, string[]>();
    const { relay } = await startRelay(db, {
      application: 'shop',
      destinations: {
        orders: handler(({ key, sequence }) => {
          const seen = order.get(key ?? '') ?? [];
          order.set(key ?? '', [...seen, String(sequence)]);
        }),
      },
    });
    const before = sent;
    await waitFor(() => sent > before + 300, { what: 'messages after the routes' });
    stopping.abort();
    await producing;
    await untilEnded(db, 'orders');
    await relay.stop();
    expect(await unrouted()).toBe(0);
    for (const [key, seen] of order)
      expect(seen, key).toEqual(seen.map((_, index) => String(index + 1)));
    expect([...order.values()].flat()).toHaveLength(sent);
  });
});

async function untilBlocked(): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await db.query(
        `SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE NOT l.granted AND a.datname = current_database()`,
      );
      return rows.length > 0;
    },
    { what: 'a session to wait for a lock' },
  );
}

async function sequences(destination: string): Promise<(string | null)[]> {
  const { rows } = await db.query<{ sequence: string | null }>(
    `SELECT d.sequence FROM ${db.quoted}.deliveries d JOIN ${db.quoted}.destinations t ON t.id = d.destination_id
      WHERE t.name = $1 ORDER BY d.sequence`,
    [destination],
  );
  return rows.map((row) => row.sequence);
}

/** Two messages of a key, the first with the later id, and three others. */
async function sendBehindOfClock(): Promise<void> {
  await send(db, [{ topic: 'orders', payload: 1, key: 'k' }]);
  await db.query(
    `WITH n AS (SELECT ${db.quoted}.id_at(now() + interval '1 hour') AS id),
          u AS (UPDATE ${db.quoted}.unrouted_messages SET message_id = n.id FROM n)
     UPDATE ${db.quoted}.messages SET id = n.id FROM n`,
  );
  await send(db, [{ topic: 'orders', payload: 2, key: 'k' }]);
  await send(db, numbered('orders', 3));
}
