// A cursor that reads fewer topics than before, is deleted, or is never read loses no message: filters are removed like
// routes, unread messages that nothing wants any more become unrouted, and a cursor that nothing reads is reported.

import { describe, expect, it } from 'vitest';

import { deleteCursor, handOverCursors } from '../../src/database/cursors.js';
import { handler } from '../../src/destinations/handler.js';
import { readAlerts } from '../../src/features/alerts/database.js';
import { routeUnrouted } from '../../src/features/unrouted/database.js';
import { readGauges, readHealth } from '../../src/listing/reports.js';
import { giveHold } from '../support/holds.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { letTimePass, letTimePassFor } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, openDatabase, send, startRelay } from '../support/relay.js';
import type { RelaySettings, TestRelay } from '../support/relay.js';
import { oldMessage } from '../support/retention.js';
import { apply, tend } from '../support/versions.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ eachTestFrom: async () => {} });

const seen: string[] = [];

const reading = (...topics: string[]): RelaySettings => ({
  application: 'shop',
  destinations: { crm: handler(({ id }) => void seen.push(id), { mode: 'stream' }) },
  routes: topics.map((topic) => ({ topic, to: 'crm' })),
});

const later = (interval: string, ...running: TestRelay[]) =>
  letTimePassFor(
    db,
    interval,
    running.map(({ relay }) => relay.id),
  );

async function topicsOf(name: string): Promise<string[]> {
  const { rows } = await db.query<{ topics: string[] }>(
    `SELECT topics FROM ${db.quoted}.cursors WHERE name = $1`,
    [name],
  );
  return only(rows).topics;
}

async function unrouted(): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT message_id AS id FROM ${db.quoted}.unrouted_messages ORDER BY 1`,
  );
  return rows.map(({ id }) => id);
}

const untilSeen = (ids: readonly string[]) =>
  waitFor(() => ids.every((id) => seen.includes(id)), { what: 'all messages', timeoutMs: 20_000 });

/** Transactions of other tests on the same server can keep a remainder for a while. */
const untilHandedOver = () =>
  waitFor(
    async () => {
      await handOverCursors(openDatabase(db));
      const { rows } = await db.query(
        `SELECT FROM ${db.quoted}.cursors WHERE closing_since IS NOT NULL`,
      );
      return rows.length === 0;
    },
    { what: 'unread messages to be handed over', timeoutMs: 20_000 },
  );

async function cursor(name: string, from: string, ...topics: string[]): Promise<void> {
  await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
  await change(name, from, ...topics);
}

const change = (name: string, from: string, ...topics: string[]) =>
  db.query(
    `SELECT ${db.quoted}.define_cursor($1, $2, $3, array_fill(NULL::text, ARRAY[$4::int]),
                                       array_fill(NULL::text, ARRAY[$4::int]))`,
    [name, from, topics, topics.length],
  );

const explained = async (id: string) => {
  const { rows } = await db.query<{ status: string; sentence: string }>(
    `SELECT status, sentence FROM ${db.quoted}.explain($1)`,
    [id],
  );
  return only(rows);
};

describe('the filters of a destination in stream mode', () => {
  it('M2 N4 stay while a running relay declares them, and its messages are read', async () => {
    const before = await startRelay(db, reading('orders', 'bills'));
    const after = await startRelay(db, reading('orders', 'parcels'));
    expect(await topicsOf('crm')).toEqual(['bills', 'orders', 'parcels']);
    await later('1 hour', before, after);
    expect(await tend(db, after)).toEqual([]);
    expect(await tend(db, before)).toEqual([]);
    await untilSeen(await send(db, [...numbered('bills', 2), ...numbered('parcels', 2)]));
    expect(await topicsOf('crm')).toEqual(['bills', 'orders', 'parcels']);
  });

  it('M2 narrow ten minutes after the last relay that declared them, like routes', async () => {
    const before = await startRelay(db, reading('orders', 'bills'));
    const after = await startRelay(db, reading('orders'));
    await later('1 hour', before, after);
    await before.stop();
    await later('9 minutes', after);
    await tend(db, after);
    await untilSeen(await send(db, numbered('bills', 2)));
    await later('2 minutes', after);
    expect(await tend(db, after)).toEqual([
      { change: 'remove', route: { topic: 'bills', to: 'crm' } },
    ]);
    expect(await topicsOf('crm')).toEqual(['orders']);
    const late = await send(db, numbered('bills', 1));
    expect(await unrouted()).toEqual(late);
    await untilHandedOver();
    expect(await unrouted(), 'what was read is not unrouted').toEqual(late);
  });

  it('M2 stay while all relays are down, until one has run for ten minutes', async () => {
    const before = await startRelay(db, reading('orders', 'bills'));
    await before.stop();
    await letTimePass(db, '3 days');
    const [id] = await send(db, numbered('bills', 1));
    const after = await startRelay(db, reading('orders'));
    expect(await topicsOf('crm')).toEqual(['bills', 'orders']);
    await untilSeen([id ?? '']);
    await later('11 minutes', after);
    await tend(db, after);
    expect(await topicsOf('crm')).toEqual(['orders']);
  });

  it('M2 apply keeps them, and with prune removes them: unread messages become unrouted', async () => {
    const before = await startRelay(db, reading('orders', 'bills'));
    await before.stop();
    await letTimePass(db, '11 minutes');
    const [bill] = await send(db, numbered('bills', 1));
    await send(db, numbered('orders', 1));
    const gone = { route: { topic: 'bills', to: 'crm' } };
    expect(await apply(db, reading('orders'))).toContainEqual({ change: 'leave', ...gone });
    expect(await topicsOf('crm')).toEqual(['bills', 'orders']);
    expect(await apply(db, reading('orders'), { prune: true })).toContainEqual({
      change: 'remove',
      ...gone,
    });
    expect(await topicsOf('crm')).toEqual(['orders']);
    await untilHandedOver();
    expect(await unrouted()).toEqual([bill]);
  });

  it('M2 a change of the mode keeps what a relay of the other mode declares', async () => {
    const deliveries: RelaySettings = {
      application: 'shop',
      destinations: { crm: handler(({ id }) => void seen.push(id)) },
      routes: ['orders', 'bills'].map((topic) => ({ topic, to: 'crm' })),
    };
    const before = await startRelay(db, deliveries);
    const after = await startRelay(db, reading('orders'));
    expect(await topicsOf('crm')).toEqual(['bills', 'orders']);
    await untilSeen(await send(db, numbered('bills', 2)));
    await before.stop();
    await after.stop();
    await startRelay(db, { ...deliveries, routes: [{ topic: 'orders', to: 'crm' }] });
    await untilSeen(await send(db, numbered('bills', 2)));
    expect(await unrouted()).toEqual([]);
  });
});

describe('a cursor whose filters narrow in SQL', () => {
  it('N4 N13 makes unread messages unrouted: they are kept, reported, explained and can be routed', async () => {
    const old = await oldMessage(db, 20);
    await cursor('reader', 'beginning', 'orders', 'bills', 'old');
    const sent = await send(db, [...numbered('orders', 1), ...numbered('bills', 1)]);
    const bill = sent[1] ?? '';
    await change('reader', 'now', 'orders');
    expect(await explained(bill)).toMatchObject({
      status: 'unrouted',
      sentence: expect.stringContaining('The cursor reader has not read it') as string,
    });
    const inUse = async () => {
      const { rows } = await db.query<{ in_use: string }>(
        `SELECT DISTINCT in_use FROM ${db.quoted}.expired_partitions('7 days', '7 days')
          WHERE day = (now() AT TIME ZONE 'UTC')::date - 20`,
      );
      return only(rows).in_use;
    };
    await untilHandedOver();
    expect(await unrouted()).toEqual([old, bill]);
    expect(await inUse()).toBe('messages without a route wait for one');
    const health = await readHealth(openDatabase(db));
    expect(health.find(({ metric }) => metric === 'unrouted')).toMatchObject({ value: 2 });
    expect(await explained(bill)).toEqual({
      status: 'unrouted',
      sentence: 'No route and no cursor wants it. It is kept until it is routed or discarded.',
    });
    await addRoute(db, await defineDestination(db, 'late'), 'bills');
    expect(await routeUnrouted(openDatabase(db), 'ann')).toBe(1);
  });

  it('N4 covers messages of transactions that are open at the change', async () => {
    await cursor('reader', 'now', 'orders', 'bills');
    const client = await db.connect();
    await client.query('BEGIN');
    const { rows } = await client.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue('bills')`,
    );
    await change('reader', 'now', 'orders');
    await handOverCursors(openDatabase(db));
    await client.query('COMMIT');
    await untilHandedOver();
    expect(await unrouted()).toEqual(rows.map(({ id }) => id));
  });

  it('N4 a producer with a single earlier snapshot fails, and its retry is unrouted', async () => {
    await cursor('reader', 'now', 'orders', 'bills');
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await client.query('SELECT 1');
    await change('reader', 'now', 'orders');
    const enqueue = () => client.query(`SELECT ${db.quoted}.enqueue('bills')`);
    await expect(enqueue()).rejects.toMatchObject({ code: '40001' });
    await client.query('ROLLBACK');
    await enqueue();
    expect(await unrouted()).toHaveLength(1);
  });

  it('N4 leaves messages alone that another cursor reads or a route has taken, but not those before its start', async () => {
    await addRoute(db, await defineDestination(db, 'routed'), 'routed');
    await cursor('reader', 'now', '*');
    const early = await send(db, numbered('bills', 1));
    await cursor('other', 'now', 'bills');
    await send(db, [...numbered('bills', 1), ...numbered('routed', 1)]);
    await change('reader', 'now', 'orders');
    // a later change of the other cursor does not matter
    await change('other', 'now', 'bills', 'routed');
    await untilHandedOver();
    expect(await unrouted()).toEqual(early);
  });

  it('N4 wider filters leave nothing behind', async () => {
    await cursor('reader', 'now', 'user.created', 'bills');
    await send(db, numbered('bills', 1));
    await change('reader', 'now', 'user.*', 'bills');
    await change('reader', 'now', '*');
    const { rows } = await db.query(`SELECT name FROM ${db.quoted}.cursors`);
    expect(rows).toEqual([{ name: 'reader' }]);
  });
});

describe('a cursor that is deleted with force', () => {
  it('N4 N13 makes unread messages unrouted, also those of open transactions', async () => {
    await cursor('reader', 'now', 'bills');
    const sent = await send(db, numbered('bills', 2));
    const client = await db.connect();
    await client.query('BEGIN');
    const { rows } = await client.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue('bills')`,
    );
    const remove = (force: boolean) =>
      deleteCursor(openDatabase(db), 'reader', { actor: 'ann', force });
    await expect(remove(false)).rejects.toThrow('it has not read 2 messages');
    await remove(true);
    expect(await unrouted()).toEqual(sent);
    await client.query('COMMIT');
    await untilHandedOver();
    expect(await unrouted()).toEqual([...sent, only(rows).id]);
  });

  it('N4 leaves to another cursor what that one reads', async () => {
    await cursor('reader', 'now', 'bills');
    await cursor('other', 'now', '*');
    await send(db, numbered('bills', 2));
    await deleteCursor(openDatabase(db), 'reader', { actor: 'ann', force: true });
    await untilHandedOver();
    expect(await unrouted()).toEqual([]);
  });
});

describe('a cursor that does not move', () => {
  async function reported() {
    const database = openDatabase(db);
    const health = await readHealth(database);
    const alerts = await readAlerts(database);
    return {
      ...only(health.filter(({ metric }) => metric === 'stalled_cursors')),
      firing: only(alerts.filter(({ alert }) => alert === 'stalled_cursors')).firing,
      gauge: (await readGauges(database)).stalledCursors,
    };
  }
  const notMovedFor = (minutes: number, more = '') =>
    db.query(
      `UPDATE ${db.quoted}.cursors SET moved_at = clock_timestamp() - $1 * interval '1 minute'${more}`,
      [minutes],
    );
  const calm = { value: 0, alarm: null, firing: false, gauge: 0 };

  it('N13 P14 is reported when a message has waited for it, and not before', async () => {
    await cursor('reader', 'beginning', 'old');
    await cursor('another', 'beginning', 'bills');
    await send(db, numbered('old', 1));
    await notMovedFor(60);
    expect(await reported(), 'the message is new').toMatchObject(calm);
    await oldMessage(db, 1);
    await notMovedFor(14);
    expect(await reported(), 'it moved lately').toMatchObject(calm);
    await notMovedFor(16);
    expect(await reported()).toMatchObject({
      value: 1,
      alarm: expect.stringContaining('a cursor has stopped: reader (nothing reads it)') as string,
      firing: true,
      gauge: 1,
    });
    await giveHold(db, 'cursor reader');
    expect((await reported()).alarm).toContain('reader (its reader does not get on)');
    await db.query(`SELECT ${db.quoted}.reset_cursor('reader', 'now')`);
    await notMovedFor(16);
    expect(await reported(), 'nothing is unread').toMatchObject(calm);
  });

  it('N13 P14 is reported within a window, and looks at a bounded number of messages', async () => {
    const old = await oldMessage(db, 1);
    await cursor('reader', 'beginning', 'old');
    await notMovedFor(16, `, target = pg_current_snapshot()`);
    expect(await reported()).toMatchObject({ value: 1 });
    await db.query(`UPDATE ${db.quoted}.cursors SET position = $1`, [old]);
    expect(await reported()).toMatchObject(calm);
    await db.query(
      `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
       SELECT 2, overlay(${db.quoted}.new_id()::text PLACING left($1, 14) FROM 1)::uuid, now(), pg_current_xact_id(), 'default', 'noise', '{}'
         FROM generate_series(1, 10000)`,
      [old],
    );
    expect(await reported(), 'it holds back the log').toMatchObject({ value: 1 });
  });
});
