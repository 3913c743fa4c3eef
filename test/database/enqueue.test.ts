// Enqueue inside the producer's transaction: the message exists if and only if the transaction commits, and it is
// stored as given.

import type pg from 'pg';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { createOutbox, NoTransactionError } from '../../src/index.js';
import type { TransactionHandle } from '../../src/producer/adapters/adapt.js';
import type { Outbox } from '../../src/index.js';
import { backendId } from '../support/locks.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
let outbox: Outbox;
let queue: Queue;

beforeAll(async () => {
  outbox = createOutbox({ schema: db.schema });
  queue = await makeQueue(db);
  await db.query('CREATE TABLE effects (name text)');
});

async function traces(name: string): Promise<{ effects: number; messages: number }> {
  const { rows } = await db.query<{ effects: number; messages: number }>(
    `SELECT (SELECT count(*) FROM effects WHERE name = $1)::int AS effects,
            (SELECT count(*) FROM ${db.quoted}.messages WHERE payload ->> 'name' = $1)::int AS messages`,
    [name],
  );
  return only(rows);
}

async function writeBoth(client: pg.Client | pg.PoolClient, name: string): Promise<void> {
  await client.query('INSERT INTO effects VALUES ($1)', [name]);
  await outbox.enqueue(client, { topic: queue.topic, payload: { name } });
}

describe('transactions', () => {
  it('M1 a commit keeps the effects and the message', async () => {
    await db.inTransaction((client) => writeBoth(client, 'committed'));
    expect(await traces('committed')).toEqual({ effects: 1, messages: 1 });
  });

  it('M1 a message is invisible to others until its transaction commits', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await writeBoth(client, 'open');
    expect(await traces('open')).toEqual({ effects: 0, messages: 0 });
    await client.query('COMMIT');
    expect(await traces('open')).toEqual({ effects: 1, messages: 1 });
  });

  it('M1 a rollback keeps neither the effects nor the message', async () => {
    const rolledBack = db.inTransaction(async (client) => {
      await writeBoth(client, 'rolled back');
      throw new Error('changed my mind');
    });
    await expect(rolledBack).rejects.toThrow('changed my mind');
    expect(await traces('rolled back')).toEqual({ effects: 0, messages: 0 });
  });

  it('M1 a rollback to a savepoint undoes only what came after it, in every table', async () => {
    await db.inTransaction(async (client) => {
      await writeBoth(client, 'before the savepoint');
      await client.query('SAVEPOINT here');
      await client.query('INSERT INTO effects VALUES ($1)', ['after the savepoint']);
      await outbox.enqueue(client, {
        topic: queue.topic,
        dedupeKey: 'savepoint',
        payload: { name: 'after the savepoint' },
      });
      await client.query('ROLLBACK TO SAVEPOINT here');
    });
    expect(await traces('before the savepoint')).toEqual({ effects: 1, messages: 1 });
    expect(await traces('after the savepoint')).toEqual({ effects: 0, messages: 0 });
    const { rows } = await db.query(
      `SELECT * FROM ${db.quoted}.dedupe_keys WHERE dedupe_key = 'savepoint'`,
    );
    expect(rows).toEqual([]);
  });

  it('M1 a backend that is killed before the commit leaves neither', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await writeBoth(client, 'killed');
    const backend = await backendId(client);
    await db.query('SELECT pg_terminate_backend($1)', [backend]);
    await expect(client.query('COMMIT')).rejects.toThrow(/terminat|connection error/);
    await waitFor(
      async () =>
        (await db.query('SELECT FROM pg_stat_activity WHERE pid = $1', [backend])).rowCount === 0,
      { what: 'the backend to be gone' },
    );
    expect(await traces('killed')).toEqual({ effects: 0, messages: 0 });
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.deliveries d WHERE NOT EXISTS
         (SELECT FROM ${db.quoted}.messages m WHERE m.id = d.message_id)`,
    );
    expect(rows).toEqual([]);
  });
});

describe('what is stored', () => {
  it('M2 W1 every field is stored as given, the aggregate separately from the key', async () => {
    const before = new Date();
    const { id, duplicate } = await db.inTransaction((client) =>
      outbox.enqueue(client, {
        topic: queue.topic,
        namespace: 'shop',
        tenantId: 'acme',
        key: 'participant-7',
        dedupeKey: 'acme/order-1',
        aggregateType: 'order',
        aggregateId: 'o-1',
        headers: { trace: 'abc' },
        payload: { total: 12.5, lines: [1, null, 'x'] },
      }),
    );
    expect(duplicate).toBe(false);
    const { rows } = await db.query(`SELECT * FROM ${db.quoted}.messages WHERE id = $1`, [id]);
    const { created_at: createdAt, ...message } = only(rows);
    expect(message).toMatchObject({
      namespace: 'shop',
      topic: queue.topic,
      tenant_id: 'acme',
      key: 'participant-7',
      dedupe_key: 'acme/order-1',
      aggregate_type: 'order',
      aggregate_id: 'o-1',
      headers: { trace: 'abc' },
      payload: { total: 12.5, lines: [1, null, 'x'] },
    });
    expect(Math.abs((createdAt as Date).getTime() - before.getTime())).toBeLessThan(60_000);
  });

  it('M2 everything but the topic may be left out', async () => {
    const { id } = await db.inTransaction((client) =>
      outbox.enqueue(client, { topic: queue.topic }),
    );
    const { rows } = await db.query(`SELECT * FROM ${db.quoted}.messages WHERE id = $1`, [id]);
    expect(only(rows)).toMatchObject({
      namespace: 'default',
      tenant_id: null,
      key: null,
      dedupe_key: null,
      aggregate_type: null,
      aggregate_id: null,
      headers: null,
      payload: null,
    });
  });

  it('M2 the SQL function stores the same as the TypeScript one', async () => {
    const { rows: made } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue($1, '{"a": 1}', namespace => 'shop', tenant_id => 'acme', key => 'k',
         dedupe_key => 'acme/sql', aggregate_type => 'order', aggregate_id => 'o-2', headers => '{"h": "v"}')`,
      [queue.topic],
    );
    const { rows } = await db.query(`SELECT * FROM ${db.quoted}.messages WHERE id = $1`, [
      only(made).id,
    ]);
    expect(only(rows)).toMatchObject({
      namespace: 'shop',
      topic: queue.topic,
      tenant_id: 'acme',
      key: 'k',
      dedupe_key: 'acme/sql',
      aggregate_type: 'order',
      aggregate_id: 'o-2',
      headers: { h: 'v' },
      payload: { a: 1 },
    });
  });

  it('M2 unicode, escapes and numbers beyond a double reach the database unchanged', async () => {
    const text = 'żółć 漢字 🚚 \u2028 "quoted" \\u0000 \\ \t \u0001';
    const { id } = await db.inTransaction((client) =>
      outbox.enqueue(client, { topic: queue.topic, payload: { text } }),
    );
    const { rows } = await db.query<{ text: string }>(
      `SELECT payload ->> 'text' AS text FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    expect(only(rows).text).toBe(text);
    const { rows: made } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue($1, '{"n": 123456789012345678901234567890.5}')`,
      [queue.topic],
    );
    const { rows: stored } = await db.query<{ payload: string }>(
      `SELECT payload::text FROM ${db.quoted}.messages WHERE id = $1`,
      [only(made).id],
    );
    expect(only(stored).payload).toBe('{"n": 123456789012345678901234567890.5}');
  });

  it('M2 a delay and a time decide when a message is due', async () => {
    const timed = await makeQueue(db);
    const at = new Date(Date.now() + 3_600_000);
    const ids = await db.inTransaction((client) =>
      outbox.enqueueMany(client, [
        { topic: timed.topic, availableAt: at },
        { topic: timed.topic, availableAt: '2001-02-03T04:05:06+01:00' },
        { topic: timed.topic, delayMs: 60_000 },
        { topic: timed.topic },
      ]),
    );
    const due = new Map((await timed.waiting()).map((row) => [row.message_id, row.available_at]));
    const times = ids.map(({ id }) => due.get(id)?.getTime() ?? Number.NaN);
    expect(times[0]).toBe(at.getTime());
    expect(times[1]).toBe(Date.parse('2001-02-03T03:05:06Z'));
    expect((times[2] ?? 0) - (times[3] ?? 0)).toBeGreaterThan(59_000);
    expect((times[2] ?? 0) - (times[3] ?? 0)).toBeLessThanOrEqual(60_000);
    expect((await timed.claim()).ids).toEqual([ids[1]?.id, ids[3]?.id]);
  });
});

describe('where enqueue may run', () => {
  it('M1 a pool, and a client outside a transaction, are refused, and nothing is sent', async () => {
    const message = { topic: queue.topic, payload: { name: 'outside' } };
    const client = await db.connect();
    const pool = /a pool, not a transaction: .* Give a client of pool\.connect\(\) on which BEGIN/s;
    await expect(outbox.enqueue(db.pool, message)).rejects.toThrow(pool);
    await expect(outbox.enqueue(client, message)).rejects.toThrow(/not in a transaction.*BEGIN/s);
    await expect(outbox.enqueue({} as pg.Client, message)).rejects.toThrow(NoTransactionError);
    expect(await traces('outside')).toEqual({ effects: 0, messages: 0 });
    await outbox.enqueue(db.pool, message, { autonomous: true });
    await outbox.enqueue(client, message, { autonomous: true });
    expect(await traces('outside')).toEqual({ effects: 0, messages: 2 });
  });

  it('M1 a client is outside a transaction after its commit, and inside while its BEGIN is being sent', async () => {
    const client = await db.connect();
    const message = { topic: queue.topic, payload: { name: 'again' } };
    const begun = client.query('BEGIN');
    await outbox.enqueue(client, message);
    await begun;
    await client.query('COMMIT');
    await expect(outbox.enqueue(client, message)).rejects.toThrow(NoTransactionError);
    expect(await traces('again')).toEqual({ effects: 0, messages: 1 });
  });

  it('M1 if the driver does not know, the server is asked, with any role and protocol, and without a trace', async () => {
    const client = await db.connect();
    const role = `producer_${process.pid}_${Math.random().toString(36).slice(2, 8)}`;
    await db.query(`CREATE ROLE ${role}`);
    onTestFinished(async () => void (await db.query(`DROP ROLE ${role}`)));
    await client.query(`SET ROLE ${role}`);
    // as most libraries ask; a statement of this protocol has a later time than its transaction even alone
    const extended = {
      query: (text: string, values: unknown[]) =>
        client.query({ text, values, queryMode: 'extended' } as pg.QueryConfig),
    };
    await expect(outbox.enqueueMany(extended, [])).rejects.toThrow(NoTransactionError);
    await client.query('BEGIN');
    expect(await outbox.enqueueMany(extended, [])).toEqual([]);
    const { rows } = await client.query('SELECT pg_current_xact_id_if_assigned() AS xid');
    expect(rows, 'the query changes nothing').toEqual([{ xid: null }]);
    await client.query('COMMIT');
    await expect(outbox.enqueueMany(extended, [])).rejects.toThrow(NoTransactionError);
    await client.query('BEGIN');
    await expect(client.query('SELECT 1 / 0')).rejects.toThrow(/division by zero/);
    await expect(outbox.enqueueMany(extended, [])).rejects.toMatchObject({ code: '25P02' });
    await client.query('ROLLBACK');
    await client.query('RESET ROLE');
  });

  it.each(['COMMIT', 'ROLLBACK'])(
    'M1 a message that was not awaited does not arrive after the %s of its transaction',
    async (end) => {
      const client = await db.connect();
      const name = `overtaken by ${end}`;
      const message = { topic: queue.topic, payload: { name } };
      // as another library does: statements are sent one after the other, whatever their source
      const library = { query: (sql: string, values: unknown[]) => client.query(sql, values) };
      const enqueued = (handle: TransactionHandle) =>
        outbox.enqueue(handle, message).catch((error: unknown) => error);
      for (const handle of [client, library]) {
        await client.query('BEGIN');
        const ending = client.query(end);
        expect(await enqueued(handle)).toBeInstanceOf(NoTransactionError);
        await ending;
      }
      await client.query('BEGIN');
      const overtaken = enqueued(library);
      await client.query(end);
      expect(await overtaken).toMatchObject({
        code: 'no_transaction',
        message: expect.stringContaining('ended meanwhile (is an await missing?)') as string,
      });
      expect(await traces(name)).toEqual({ effects: 0, messages: 0 });
    },
  );

  it('M1 a message that was not awaited, but sent in time, commits or rolls back with its transaction', async () => {
    const client = await db.connect();
    const message = { topic: queue.topic, payload: { name: 'in time' } };
    for (const [end, messages] of [
      ['ROLLBACK', 0],
      ['COMMIT', 1],
    ] as const) {
      await client.query('BEGIN');
      await Promise.all([outbox.enqueue(client, message), client.query(end)]);
      expect(await traces('in time')).toEqual({ effects: 0, messages });
    }
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])('M1 a producer may run in %s', async (level) => {
    const client = await db.connect();
    await client.query(`BEGIN ISOLATION LEVEL ${level}`);
    await client.query('SELECT count(*) FROM effects');
    await writeBoth(client, level);
    const { duplicate } = await outbox.enqueue(client, { topic: queue.topic, dedupeKey: level });
    expect(duplicate).toBe(false);
    expect((await outbox.enqueue(client, { topic: queue.topic, dedupeKey: level })).duplicate).toBe(
      true,
    );
    await client.query('COMMIT');
    expect(await traces(level)).toEqual({ effects: 1, messages: 1 });
  });
});

it.each(['294276-12-31', '0044-03-15 BC'])(
  'M2 a time that JavaScript or a person cannot read, such as %s, is refused in SQL',
  async (time) => {
    await expect(
      db.query(`SELECT ${db.quoted}.enqueue('t', available_at => $1)`, [time]),
    ).rejects.toThrow(/availableAt is in the year -?\d+: give one from 1 to 9999/);
  },
);
