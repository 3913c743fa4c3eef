// unrouted: 'refuse': messages that no route and no cursor wants are refused before anything is written.

import { describe, expect, it } from 'vitest';

import { createOutbox, UnroutedMessageError } from '../../src/index.js';
import { defineDestination } from '../support/destinations.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { rolePrefix } from '../support/logins.js';

const db = testDatabase();

async function stored(topic: string): Promise<{ messages: number; unrouted: number }> {
  const { rows } = await db.query<{ messages: number; unrouted: number }>(
    `SELECT count(*)::int AS messages, count(u.message_id)::int AS unrouted
       FROM ${db.quoted}.messages m LEFT JOIN ${db.quoted}.unrouted_messages u ON u.message_id = m.id WHERE m.topic = $1`,
    [topic],
  );
  return rows[0] ?? { messages: 0, unrouted: 0 };
}

describe("an outbox with unrouted: 'refuse'", () => {
  const outbox = () => createOutbox({ schema: db.schema, unrouted: 'refuse' });

  it('M1 refuses a message without a route, names its topic, and leaves the transaction usable', async () => {
    const queue = await makeQueue(db);
    const sent = await db.inTransaction(async (client) => {
      await client.query(`SET LOCAL ROLE ${rolePrefix}producer`);
      const refused = outbox().enqueue(client, { topic: 'not.routed', tenantId: 'acme' });
      await expect(refused).rejects.toThrow(UnroutedMessageError);
      await expect(refused).rejects.toMatchObject({
        code: 'message_unrouted',
        topic: 'not.routed',
        message: expect.stringMatching(
          /"not\.routed" \(namespace default, tenant "acme"\).*Nothing was enqueued: add a route/,
        ) as string,
      });
      return outbox().enqueue(client, { topic: queue.topic, key: 'a' });
    });
    expect(sent).toMatchObject({ sequence: '1', duplicate: false });
    expect(await queue.waiting()).toHaveLength(1);
    expect(await stored('not.routed')).toEqual({ messages: 0, unrouted: 0 });
  });

  it('M1 refuses a whole batch for one of its messages, and says which', async () => {
    const queue = await makeQueue(db);
    const batch = [{ topic: queue.topic }, { topic: queue.topic }, { topic: 'never.routed' }];
    const refused = db.inTransaction((client) => outbox().enqueueMany(client, batch));
    await expect(refused).rejects.toThrow(/^no route matches messages\[2\], topic "never/);
    expect(await stored(queue.topic)).toEqual({ messages: 0, unrouted: 0 });
    const taken = await db.inTransaction((client) =>
      outbox().enqueueMany(client, batch.slice(0, 2)),
    );
    expect(taken).toHaveLength(2);
  });

  it('M1 accepts what a cursor reads, and answers duplicates as usual', async () => {
    await defineDestination(db, 'reader');
    await db.query(`SELECT ${db.quoted}.define_cursor('reader', 'now', '{read.*}')`);
    const message = { topic: 'read.by.cursor', dedupeKey: 'once' };
    const send = () => outbox().enqueue(db.pool, message, { autonomous: true });
    const [first, second] = [await send(), await send()];
    expect(second).toEqual({ ...first, duplicate: true });
    expect(await stored(message.topic)).toEqual({ messages: 1, unrouted: 0 });
  });
});

describe('in SQL', () => {
  const call = (text: string) => `SELECT id FROM ${db.quoted}.${text}`;

  it('M1 an argument refuses, and so does the setting waybill.unrouted', async () => {
    await expect(
      db.query(call(`enqueue('sql.unrouted', unrouted => 'refuse')`)),
    ).rejects.toMatchObject({
      code: '55000',
      message: expect.stringContaining('"sql.unrouted" (namespace default, no tenant)') as string,
      hint: expect.stringContaining('Nothing was enqueued') as string,
    });
    const client = await db.connect();
    await client.query(`SET waybill.unrouted = 'refuse'`);
    await expect(client.query(call(`enqueue('sql.unrouted')`))).rejects.toMatchObject({
      code: '55000',
    });
    const kept = createOutbox({ schema: db.schema, unrouted: 'keep' });
    await kept.enqueue(client, { topic: 'sql.unrouted' }, { autonomous: true });
    await client.query(call(`enqueue('sql.unrouted', unrouted => 'keep')`));
    expect(await stored('sql.unrouted')).toEqual({ messages: 2, unrouted: 2 });
    await client.query(`SET waybill.unrouted = 'perhaps'`);
    await expect(client.query(call(`enqueue('sql.unrouted')`))).rejects.toMatchObject({
      code: '22023',
      message: expect.stringContaining('unrouted is "perhaps": give keep or refuse') as string,
    });
  });

  it('M1 by default an unrouted message is kept', async () => {
    await db.query(call(`enqueue('sql.kept')`));
    await createOutbox({ schema: db.schema }).enqueue(
      db.pool,
      { topic: 'sql.kept' },
      { autonomous: true },
    );
    expect(await stored('sql.kept')).toEqual({ messages: 2, unrouted: 2 });
  });
});
