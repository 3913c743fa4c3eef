// The inbox: each consumer processes each message once, in its own transaction, whoever else has the same
// message at the same time and however the transactions end.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { createInbox, NoTransactionError } from '../../src/index.js';
import type { Processed, Received } from '../../src/index.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const inbox = createInbox({ schema: db.schema });

beforeAll(async () => {
  await db.query('CREATE TABLE bookings (message text NOT NULL)');
});

/** What the consumer does with a message: visible only if its transaction commits. */
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

describe('one delivery after the other', () => {
  it('M11 the first runs the work and gives its value; a duplicate is skipped and says of when', async () => {
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

  it('M11 each consumer has its own memory', async () => {
    const messageId = randomUUID();
    for (const consumer of ['billing', 'mailing', 'Billing'])
      expect(await bookInTransaction({ consumer, messageId })).toMatchObject({ processed: true });
    expect(await timesBooked(messageId)).toBe(3);
  });

  it('M11 an id is the same in whatever case it is written, a dedupe key only as it is', async () => {
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

  it('M11 a duplicate within the same transaction is one too', async () => {
    const received = { consumer: 'twice', messageId: randomUUID() };
    const answers = await db.inTransaction(async (client) => [
      await book(client, received),
      await book(client, received),
    ]);
    expect(answers.map(({ processed }) => processed)).toEqual([true, false]);
  });

  it('M11 a message is taken as a handler receives it, by its id and not by its dedupe key', async () => {
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

  it('M11 what the work throws is thrown, and the rollback forgets', async () => {
    const received = { consumer: 'billing', messageId: randomUUID() };
    const failure = new Error('no such account');
    const failing = db.inTransaction((client) =>
      inbox.process(client, received, () => Promise.reject(failure)),
    );
    await expect(failing).rejects.toBe(failure);
    expect(await bookInTransaction(received)).toMatchObject({ processed: true });
  });

  it('M11 going back to a savepoint forgets what came after it, and only that', async () => {
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

describe('two deliveries at once', () => {
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

  it('M11 the second waits for the first and is skipped when that commits', async () => {
    expect(await race('COMMIT')).toMatchObject({ processed: false });
  });

  it('M11 the second waits for the first and runs when that rolls back', async () => {
    expect(await race('ROLLBACK')).toMatchObject({ processed: true });
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])(
    'M11 under %s a duplicate that committed meanwhile fails to serialise, and is skipped the next time',
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

describe('many at once', () => {
  const messages = (count: number) => Array.from({ length: count }, () => ({ id: randomUUID() }));

  it('M11 the work gets the new ones in their order, and the answer says which were', async () => {
    const [a, b, c, d] = messages(4) as [
      { id: string },
      { id: string },
      { id: string },
      { id: string },
    ];
    await bookInTransaction({ consumer: 'batch', messageId: b.id });
    const key = { dedupeKey: 'not a uuid' };
    const { value, messages: receptions } = await db.inTransaction((client) =>
      inbox.processMany(client, { consumer: 'batch' }, [d, b, a, d, key, c], (fresh) => fresh),
    );
    expect(value).toEqual([d, a, key, c]);
    expect(receptions.map(({ processed }) => processed)).toEqual([
      true,
      false,
      true,
      false,
      true,
      true,
    ]);
    const duplicates = receptions.filter((reception) => !reception.processed);
    for (const { firstProcessedAt } of duplicates) expect(firstProcessedAt.getTime()).not.toBeNaN();
  });

  it('M11 nothing new: the work is not done', async () => {
    const batch = messages(3);
    const process = (work: () => string) =>
      db.inTransaction((client) => inbox.processMany(client, { consumer: 'batch' }, batch, work));
    expect((await process(() => 'done')).value).toBe('done');
    const again = await process(() => {
      throw new Error('done twice');
    });
    expect(again.value).toBeUndefined();
    const none = await db.inTransaction((client) =>
      inbox.processMany(client, { consumer: 'batch' }, [], () => 'done'),
    );
    expect(none).toEqual({ value: undefined, messages: [] });
  });

  it('M11 a thousand messages are one statement', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    const asked: string[] = [];
    const counting = {
      getTransactionStatus: () => 'T',
      query: (sql: string, parameters: unknown[]) => {
        asked.push(sql);
        return client.query(sql, parameters);
      },
    };
    const consumer = 'thousand';
    const { value } = await inbox.processMany(
      counting,
      { consumer },
      messages(1000),
      (fresh) => fresh.length,
    );
    await client.query('COMMIT');
    expect(value).toBe(1000);
    expect(asked).toHaveLength(1);
  });

  it('M11 batches with the same messages in opposite order never deadlock and process each once', async () => {
    const batch = messages(3).toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const blocker = await db.connect();
    await blocker.query('BEGIN');
    await book(blocker, { consumer: 'crossing', messageId: batch[1]?.id ?? '' });
    const begin = async (given: typeof batch) => {
      const client = await db.connect();
      await client.query('BEGIN');
      const backend = await backendId(client);
      const process = async () => {
        const options = { consumer: 'crossing' };
        const answer = await inbox.processMany(client, options, given, (fresh) => fresh.length);
        await client.query('COMMIT');
        return answer;
      };
      const ended = process();
      await waitUntilBlocked(db, backend);
      return { ended };
    };
    // in the order given, each would take its first message and then wait for the other's
    const forwards = await begin(batch);
    const backwards = await begin(batch.toReversed());
    await blocker.query('ROLLBACK');
    const answers = await Promise.all([forwards.ended, backwards.ended]);
    expect(answers.map(({ value }) => value)).toEqual([3, undefined]);
  });
});

describe('what is refused', () => {
  it('M11 a pool, a client outside a transaction and a stranger, and nothing is recorded', async () => {
    const received = { consumer: 'billing', messageId: randomUUID() };
    const client = await db.connect();
    const work = () => {
      throw new Error('the work was done');
    };
    for (const handle of [db.pool, client, {} as pg.Client]) {
      await expect(inbox.process(handle, received, work)).rejects.toThrow(NoTransactionError);
      await expect(
        inbox.processMany(handle, { consumer: 'billing' }, [], work),
      ).rejects.toMatchObject({ code: 'no_transaction' });
    }
    await expect(inbox.process(client, received, work)).rejects.toThrow(/inbox .* Run BEGIN/);
    expect(await bookInTransaction(received)).toMatchObject({ processed: true });
  });

  it('M11 a refusal here leaves the transaction usable', async () => {
    await db.inTransaction(async (client) => {
      await expect(book(client, { consumer: '', messageId: randomUUID() })).rejects.toMatchObject({
        code: 'message_refused',
        field: 'consumer',
      });
      await client.query('SELECT 1');
    });
  });

  it.each([
    [/messageId is missing/, {}],
    [/messageId .* and dedupeKey "a" exclude/, { messageId: randomUUID(), dedupeKey: 'a' }],
    [/dedupeKey "" must have 1 to 1024/, { dedupeKey: '' }],
    [/dedupeKey "x+" must have 1 to 1024/, { dedupeKey: 'x'.repeat(1025) }],
    [/namespace "" must/, { dedupeKey: 'a', namespace: '' }],
    [/tenantId "" must/, { dedupeKey: 'a', tenantId: '' }],
    [/key "" must/, { dedupeKey: 'a', key: '' }],
    [/sequence 1 needs a key/, { dedupeKey: 'a', sequence: 1 }],
    [/sequence 0 must be 1 or more/, { dedupeKey: 'a', key: 'k', sequence: 0 }],
    [/previousSequence 1 needs a sequence/, { dedupeKey: 'a', key: 'k', previousSequence: 1 }],
    [
      /previousSequence 5 must be from 0 to below/,
      { dedupeKey: 'a', key: 'k', sequence: 5, previousSequence: 5 },
    ],
    [/previousSequence -1 must/, { dedupeKey: 'a', key: 'k', sequence: 5, previousSequence: -1 }],
    [
      /dedupekey is not a field of a received message: use messageId/,
      { dedupeKey: 'a', dedupekey: 'b' },
    ],
  ])('M11 SQL refuses: %s', async (problem, message) => {
    const begun = db.query(`SELECT * FROM ${db.quoted}.inbox_begin_many('sql', $1)`, [
      JSON.stringify([{ dedupeKey: 'good' }, message]),
    ]);
    await expect(begun).rejects.toThrow(problem);
    const { rows } = await db.query(`SELECT FROM ${db.quoted}.inbox WHERE consumer = 'sql'`);
    expect(rows).toEqual([]);
  });

  it.each([
    ["''", /consumer "" must have 1 to 255/],
    ['NULL', /consumer "" must/],
    [`repeat('x', 256)`, /consumer "x+" must/],
  ])('M11 SQL refuses the consumer %s', async (consumer, problem) => {
    await expect(
      db.query(`SELECT * FROM ${db.quoted}.inbox_begin(${consumer}, dedupe_key => 'a')`),
    ).rejects.toThrow(problem);
  });

  it('M11 SQL refuses what is not a list', async () => {
    for (const messages of ['{}', '"a"', null])
      await expect(
        db.query(`SELECT * FROM ${db.quoted}.inbox_begin_many('sql', $1)`, [messages]),
      ).rejects.toThrow(/messages must be a JSON array/);
  });
});

describe('in SQL', () => {
  it('M11 a consumer that may do nothing but call it can use it', async () => {
    const role = `consumer_${randomUUID().slice(0, 8)}`;
    const { rows: functions } = await db.query<{ signature: string }>(
      `SELECT p.oid::regprocedure::text AS signature FROM pg_proc p
        WHERE p.pronamespace = $1::text::regnamespace AND p.proname = 'inbox_begin'`,
      [db.quoted],
    );
    await db.query(`CREATE ROLE ${role} LOGIN; GRANT USAGE ON SCHEMA ${db.quoted} TO ${role};
      GRANT EXECUTE ON FUNCTION ${only(functions).signature} TO ${role}`);
    const url = new URL(db.url);
    url.username = role;
    const client = new pg.Client({ connectionString: url.href });
    await client.connect();
    try {
      const begin = async () => {
        const { rows } = await client.query<{ is_new: boolean }>(
          `SELECT is_new FROM ${db.quoted}.inbox_begin('sql', dedupe_key => 'granted')`,
        );
        return only(rows).is_new;
      };
      expect([await begin(), await begin()]).toEqual([true, false]);
      await expect(client.query(`SELECT FROM ${db.quoted}.inbox`)).rejects.toMatchObject({
        code: '42501',
      });
    } finally {
      await client.end();
      await db.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  it('M11 a message forgotten while it is compared is a failure to serialise, not a guess', async () => {
    const client = await db.connect();
    const begin = () =>
      client.query(`SELECT is_new FROM ${db.quoted}.inbox_begin('pruned', dedupe_key => 'old')`);
    await begin();
    await client.query(`
      CREATE FUNCTION pg_temp.prune() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN DELETE FROM ${db.quoted}.inbox WHERE consumer = 'pruned'; RETURN NULL; END $$;
      BEGIN;
      CREATE TRIGGER prune AFTER INSERT ON ${db.quoted}.inbox EXECUTE FUNCTION pg_temp.prune()`);
    await expect(begin()).rejects.toMatchObject({ code: '40001' });
    await client.query('ROLLBACK');
  });
});
