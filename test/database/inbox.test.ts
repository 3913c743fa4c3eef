// The inbox: each consumer processes each message once, in its own transaction, whichever consumers have the same
// message at the same time and however the transactions end.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { createInbox } from '../../src/index.js';
import type { Processed, Received } from '../../src/index.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const inbox = createInbox({ schema: db.schema });

beforeAll(async () => {
  await db.query('CREATE TABLE bookings (message text NOT NULL)');
});

/** The work of the consumer: visible only if its transaction commits. */
async function book(client: pg.ClientBase, received: Received): Promise<Processed<string>> {
  const message = 'messageId' in received ? received.messageId : 'other';
  return inbox.process(client, received, async () => {
    await client.query('INSERT INTO bookings VALUES ($1)', [message]);
    return `booked ${message}`;
  });
}

async function bookInTransaction(received: Received): Promise<Processed<string>> {
  return db.inTransaction((client) => book(client, received));
}

async function timesBooked(message: string): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM bookings WHERE message = $1',
    [message],
  );
  return only(rows).count;
}

describe('sequential deliveries', () => {
  it('M11 the first runs the work and returns its value; a duplicate is skipped with the time of the first', async () => {
    const received = { consumer: 'billing', messageId: randomUUID() };
    const before = Date.now();
    expect(await bookInTransaction(received)).toEqual({
      processed: true,
      gap: null,
      value: `booked ${received.messageId}`,
    });
    const second = await bookInTransaction(received);
    if (second.processed) throw new Error('it was processed twice');
    expect(Math.abs(second.firstProcessedAt.getTime() - before)).toBeLessThan(10_000);
    expect(await bookInTransaction(received)).toEqual(second);
    expect(await timesBooked(received.messageId)).toBe(1);
  });

  it('M11 each consumer has its own record', async () => {
    const messageId = randomUUID();
    for (const consumer of ['billing', 'mailing', 'Billing'])
      expect(await bookInTransaction({ consumer, messageId })).toMatchObject({ processed: true });
    expect(await timesBooked(messageId)).toBe(3);
  });

  it('M11 an id is compared without case, a dedupe key exactly', async () => {
    const messageId = randomUUID();
    const first = await bookInTransaction({ consumer: 'case', messageId });
    const upper = await bookInTransaction({ consumer: 'case', messageId: messageId.toUpperCase() });
    const key = await bookInTransaction({ consumer: 'case', dedupeKey: 'payment-é' });
    const sameKey = await bookInTransaction({ consumer: 'case', dedupeKey: 'payment-é' });
    const otherKey = await bookInTransaction({ consumer: 'case', dedupeKey: 'PAYMENT-é' });
    expect([first, upper, key, sameKey, otherKey].map(({ processed }) => processed)).toEqual([
      true,
      false,
      true,
      false,
      true,
    ]);
  });

  it('M11 a duplicate within the same transaction is recognised too', async () => {
    const received = { consumer: 'twice', messageId: randomUUID() };
    const answers = await db.inTransaction(async (client) => [
      await book(client, received),
      await book(client, received),
    ]);
    expect(answers.map(({ processed }) => processed)).toEqual([true, false]);
  });

  it('M11 a message from a handler is identified by its id and not by its dedupe key', async () => {
    const message = { id: randomUUID(), dedupeKey: 'order-1', key: null, sequence: null };
    const again = { ...message, dedupeKey: 'order-2' };
    const work = () => 'done';
    const answers = await db.inTransaction(async (client) => [
      await inbox.process(client, { consumer: 'shop', message }, work),
      await inbox.process(client, { consumer: 'shop', message: again }, work),
      await inbox.process(client, { consumer: 'shop', messageId: message.id }, work),
    ]);
    expect(answers.map(({ processed }) => processed)).toEqual([true, false, false]);
  });
});

describe('a transaction that does not commit', () => {
  it('M11 a rollback forgets', async () => {
    const received = { consumer: 'billing', messageId: randomUUID() };
    const client = await db.connect();
    await client.query('BEGIN');
    expect(await book(client, received)).toMatchObject({ processed: true });
    await client.query('ROLLBACK');
    expect(await bookInTransaction(received)).toMatchObject({ processed: true });
    expect(await timesBooked(received.messageId)).toBe(1);
  });

  it('M11 an error of the work is rethrown, and the rollback forgets', async () => {
    const received = { consumer: 'billing', messageId: randomUUID() };
    const failure = new Error('no such account');
    const failing = db.inTransaction((client) =>
      inbox.process(client, received, () => Promise.reject(failure)),
    );
    await expect(failing).rejects.toBe(failure);
    expect(await bookInTransaction(received)).toMatchObject({ processed: true });
  });

  it('M11 a rollback to a savepoint forgets only what came after it', async () => {
    const [kept, undone] = [randomUUID(), randomUUID()];
    const consumer = 'billing';
    await db.inTransaction(async (client) => {
      await book(client, { consumer, messageId: kept });
      await client.query('SAVEPOINT before');
      await expect(
        inbox.process(client, { consumer, messageId: undone }, () => client.query('SELECT 1/0')),
      ).rejects.toThrow(/division by zero/);
      await client.query('ROLLBACK TO before');
    });
    expect(await bookInTransaction({ consumer, messageId: kept })).toMatchObject({
      processed: false,
    });
    expect(await bookInTransaction({ consumer, messageId: undone })).toMatchObject({
      processed: true,
    });
  });
});

describe('concurrent deliveries', () => {
  async function race(end: 'COMMIT' | 'ROLLBACK') {
    const received = { consumer: 'billing', messageId: randomUUID() };
    const [first, second] = await Promise.all([db.connect(), db.connect()]);
    await first.query('BEGIN');
    await second.query('BEGIN');
    const winner = await book(first, received);
    const backend = await backendId(second);
    const pending = book(second, received);
    await waitUntilBlocked(db, backend);
    await first.query(end);
    const loser = await pending;
    await second.query('COMMIT');
    expect(winner.processed).toBe(true);
    expect(await timesBooked(received.messageId)).toBe(1);
    return loser;
  }

  it('M11 the second waits for the first and is skipped when the first commits', async () => {
    expect(await race('COMMIT')).toMatchObject({ processed: false });
  });

  it('M11 the second waits for the first and runs when the first rolls back', async () => {
    expect(await race('ROLLBACK')).toMatchObject({ processed: true });
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])(
    'M11 under %s a duplicate that committed meanwhile is a serialization failure, and is skipped the next time',
    async (level) => {
      const received = { consumer: level, messageId: randomUUID() };
      const late = await db.connect();
      await late.query(`BEGIN ISOLATION LEVEL ${level}`);
      await late.query('SELECT 1 FROM pg_class LIMIT 1');
      await bookInTransaction(received);
      await expect(book(late, received)).rejects.toMatchObject({ code: '40001' });
      await late.query('ROLLBACK');
      await late.query(`BEGIN ISOLATION LEVEL ${level}`);
      expect(await book(late, received)).toMatchObject({ processed: false });
      const fresh = { consumer: level, messageId: randomUUID() };
      expect(await book(late, fresh)).toMatchObject({ processed: true });
      expect(await book(late, fresh)).toMatchObject({ processed: false });
      await late.query('COMMIT');
      expect(await timesBooked(received.messageId)).toBe(1);
    },
  );
});
