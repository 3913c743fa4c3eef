// A destination changes between deliveries and stream mode in a normal rolling deploy. No message is lost, not even one
// of a transaction that is open meanwhile, and no cursor is left behind.

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { letTimePassFor, routesOf } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, send, startRelay } from '../support/relay.js';
import type { TestRelay } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ eachTestFrom: async () => {} });

/** Both versions of the application put the ids of their messages here. */
function versions() {
  const seen: string[] = [];
  const start = async (mode: 'deliver' | 'stream', topic = 'orders'): Promise<TestRelay> =>
    startRelay(db, {
      application: 'shop',
      destinations: { crm: handler(({ id }) => void seen.push(id), { mode }) },
      routes: [{ topic, to: 'crm' }],
    });
  const until = (ids: readonly string[]) =>
    waitFor(() => ids.every((id) => seen.includes(id)), {
      what: 'all messages',
      timeoutMs: 20_000,
    });
  return { seen, start, until };
}

const orders = (count: number) => send(db, numbered('orders', count));

async function cursors(): Promise<string[]> {
  const { rows } = await db.query<{ name: string }>(`SELECT name FROM ${db.quoted}.cursors`);
  return rows.map(({ name }) => name);
}

/** Transactions of other tests on the same server can also keep the cursor for a while. */
const untilNoCursor = ({ relay }: TestRelay) =>
  waitFor(
    async () => {
      await relay.tendDefinitions();
      return (await cursors()).length === 0;
    },
    { what: 'the cursor to be removed', timeoutMs: 20_000 },
  );

describe('from deliveries to stream mode', () => {
  it('M2 a rolling deploy loses nothing, and the routes become a cursor', async () => {
    const { start, until } = versions();
    const before = await start('deliver');
    const first = await orders(5);
    const after = await start('stream');
    const second = await orders(5);
    expect(await routesOf(db)).toEqual([]);
    expect(await cursors()).toEqual(['crm']);
    await before.relay.tendDefinitions();
    expect(await routesOf(db)).toEqual([]);
    await before.stop();
    const third = await orders(5);
    await until([...first, ...second, ...third]);
    await after.relay.tendDefinitions();
    expect(await cursors()).toEqual(['crm']);
  });

  it('M2 the cursor begins at the change, also with from: beginning', async () => {
    const seen: string[] = [];
    const before = versions();
    const old = await before.start('deliver');
    const first = await orders(3);
    await before.until(first);
    await old.stop();
    await startRelay(db, {
      application: 'shop',
      destinations: {
        crm: handler(({ id }) => void seen.push(id), { mode: 'stream', from: 'beginning' }),
      },
      routes: [{ topic: 'orders', to: 'crm' }],
    });
    const second = await orders(3);
    await waitFor(() => seen.length >= 3, { what: 'the messages after the change' });
    expect(seen).toEqual(second);
  });
});

describe('from stream mode to deliveries', () => {
  it('M2 unread messages become deliveries, and the cursor is gone', async () => {
    const { seen, start, until } = versions();
    const before = await start('stream');
    await until(await orders(2));
    await before.stop();
    const unread = await orders(2500);
    const after = await start('deliver');
    const later = await orders(2);
    await until([...unread, ...later]);
    await untilNoCursor(after);
    expect(seen).toHaveLength(2504);
  });

  it('M2 while both versions run, each message is sent once, and the old one stays idle', async () => {
    const { seen, start, until } = versions();
    const before = await start('stream');
    await until(await orders(2));
    const after = await start('deliver');
    const between = await orders(50);
    await until(between);
    await untilNoCursor(after);
    expect(before.of('trouble')).toEqual([]);
    await before.stop();
    await until(await orders(2));
    expect(seen).toHaveLength(54);
    expect(await routesOf(db)).toEqual(['shop: orders -> crm']);
  });

  it('M2 the cursor stays until the transactions that relied on it have ended', async () => {
    const { start, until } = versions();
    const before = await start('stream');
    const client = await db.connect();
    await client.query('BEGIN');
    const { rows } = await client.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue('orders')`,
    );
    const after = await start('deliver');
    await before.stop();
    await after.relay.tendDefinitions();
    expect(await cursors()).toEqual(['crm']);
    await client.query('COMMIT');
    await untilNoCursor(after);
    await until(rows.map(({ id }) => id));
  });

  it('M2 a producer with a single earlier snapshot fails, and its retry is delivered', async () => {
    const { start } = versions();
    const before = await start('stream');
    await before.stop();
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await client.query('SELECT 1');
    await start('deliver');
    await expect(client.query(`SELECT ${db.quoted}.enqueue('orders')`)).rejects.toMatchObject({
      code: '40001',
    });
    await client.query('ROLLBACK');
  });

  it('M2 an old relay that starts in between changes it back, and loses nothing', async () => {
    const { start, until } = versions();
    const before = await start('stream');
    const after = await start('deliver');
    const first = await orders(5);
    const again = await start('stream');
    const second = await orders(5);
    await before.stop();
    await again.stop();
    const third = await orders(5);
    await letTimePassFor(db, '1 minute', [after.relay.id]);
    await after.relay.tendDefinitions();
    const fourth = await orders(5);
    await until([...first, ...second, ...third, ...fourth]);
    await untilNoCursor(after);
  });
});

it('N4 a reader of an old version does not skip topics that the new version adds', async () => {
  const { start, until } = versions();
  await start('stream', 'orders');
  await start('stream', '*');
  const bills = await send(db, numbered('bills', 3));
  await until(bills);
});
