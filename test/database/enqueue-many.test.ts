// Bulk enqueue: any number of messages takes one round trip and a constant number of statements inside the server, and
// the results are in the order of the messages.

import type pg from 'pg';
import { describe, expect, it } from 'vitest';

import { createOutbox } from '../../src/index.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

/** A client that counts the round trips made through it. */
function counting(client: pg.Client): {
  query(sql: string, parameters: unknown[]): Promise<pg.QueryResult>;
  count: number;
} {
  const counter = {
    count: 0,
    query(sql: string, parameters: unknown[]) {
      counter.count += 1;
      return client.query(sql, parameters);
    },
  };
  return counter;
}

/** The statements that the server ran inside functions, as auto_explain reports them. */
async function nestedStatements(client: pg.Client, work: () => Promise<unknown>): Promise<number> {
  let count = 0;
  const listen = (notice: { message?: string | undefined }): void => {
    if (notice.message?.startsWith('duration:')) count += 1;
  };
  await client.query(`LOAD 'auto_explain'; SET auto_explain.log_nested_statements = on;
    SET auto_explain.log_level = notice; SET auto_explain.log_min_duration = 0; SET auto_explain.log_format = text`);
  client.on('notice', listen);
  await work();
  client.off('notice', listen);
  await client.query('SET auto_explain.log_min_duration = -1');
  return count;
}

describe('a batch', () => {
  it('M2 W4 10,000 messages are one round trip inside the transaction', async () => {
    const queue = await makeQueue(db);
    const outbox = createOutbox({ schema: db.schema });
    const client = await db.connect();
    await client.query('BEGIN');
    const counted = counting(client);
    const messages = Array.from({ length: 10_000 }, (_, n) => ({
      topic: queue.topic,
      payload: { n },
    }));
    const enqueued = await outbox.enqueueMany(counted, messages);
    // one to check that there is a transaction, which a real client knows by itself, and one for the batch
    expect(counted.count).toBe(2);
    await client.query('COMMIT');
    expect(new Set(enqueued.map(({ id }) => id)).size).toBe(10_000);
    const { rows } = await db.query<{ inOrder: number }>(
      `SELECT count(*)::int AS "inOrder" FROM unnest($1::uuid[]) WITH ORDINALITY u(id, place)
         JOIN ${db.quoted}.messages m USING (id) WHERE (m.payload ->> 'n')::int = place - 1`,
      [enqueued.map(({ id }) => id)],
    );
    expect(only(rows).inOrder).toBe(10_000);
    expect(await queue.waiting()).toHaveLength(10_000);
  });

  it('M2 W4 the server runs as many statements for 5,000 messages as for two', async () => {
    const queue = await makeQueue(db);
    const outbox = createOutbox({ schema: db.schema });
    const client = await db.connect();
    const statements = async (messages: number, from: number): Promise<number> => {
      await client.query('BEGIN');
      const count = await nestedStatements(client, () =>
        outbox.enqueueMany(
          client,
          Array.from({ length: messages }, (_, n) => ({
            topic: queue.topic,
            dedupeKey: `key-${from + n}`,
            headers: { a: 'b' },
          })),
        ),
      );
      await client.query('COMMIT');
      return count;
    };
    // statements of the first planning are not counted
    await statements(1, 0);
    await statements(2, 1);
    const forTwo = await statements(2, 3);
    expect(forTwo).toBeGreaterThan(0);
    expect(await statements(5_000, 5)).toBe(forTwo);
    // one has its targets found by a separate statement
    expect(await statements(1, 5_005)).toBe(forTwo + 1);
  });

  it('M2 an empty batch is no message and no error', async () => {
    const outbox = createOutbox({ schema: db.schema });
    expect(await db.inTransaction((client) => outbox.enqueueMany(client, []))).toEqual([]);
    const { rows } = await db.query(`SELECT * FROM ${db.quoted}.enqueue_many('[]')`);
    expect(rows).toEqual([]);
  });

  it('M2 anything but an array of messages is refused', async () => {
    const enqueued = db.query(`SELECT * FROM ${db.quoted}.enqueue_many('{"topic": "t"}')`);
    await expect(enqueued).rejects.toThrow(/is not a list: give a JSON array/);
  });
});
