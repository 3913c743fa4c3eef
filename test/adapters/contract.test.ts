// One contract for every driver and ORM: a message enqueued through the application's transaction commits or rolls back
// with it, arrives unchanged, and is refused outside a transaction. Tested with the real packages, on PostgreSQL
// directly and through a pooler in transaction mode.

import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { createEndpoints, createInbox, createOutbox, migrateUp } from '../../src/index.js';
import { MessageRefusedError, NoTransactionError } from '../../src/index.js';
import type { TransactionHandle } from '../../src/producer/adapters/adapt.js';
import { only } from '../support/only.js';
import { findPgbouncer, runPgbouncer } from '../support/pgbouncer.js';
import { testDatabase } from '../support/postgres.js';
import { librariesMissing, loadLibraries } from './installed.js';
import type { Library, Opened } from './library.js';

const db = testDatabase();
const missing = librariesMissing();
const pgbouncer = findPgbouncer();
const libraries = missing === null ? await loadLibraries() : [];
const ways = ['directly', ...(pgbouncer === undefined ? [] : ['through PgBouncer'])];
const cases = libraries.flatMap((library) =>
  ways.map((way) => [library.title, way, library] as const),
);

const outbox = createOutbox({ schema: db.schema });
const inbox = createInbox({ schema: db.schema });
/** All text that some driver treats as a placeholder or an escape. */
const hostile = `żółć 漢字 🚚 \u2028 "q" ' '' \\' \\\\ \\u0000 \\? ? ?? $1 $2 $$ :name ::text @p %s \t \u0001 -- /*`;
const oddSchema = 'odd ? "$1" :name';
let pooled: Awaited<ReturnType<typeof runPgbouncer>> | undefined;

beforeAll(async () => {
  await db.query('CREATE TABLE effects (name text PRIMARY KEY)');
  if (pgbouncer === undefined || missing !== null) return;
  pooled = await runPgbouncer(pgbouncer, db.url, { poolMode: 'transaction', connections: 3 });
});
afterAll(async () => pooled?.stop());

test.skipIf(missing !== null)('M1 each library is the real package, named with its version', () => {
  const name = String.raw`@?[a-z/-]+@\d+\.\d+\.\d+`;
  const titles = libraries.map(({ title }) => title);
  expect(titles.filter((title) => !new RegExp(`^${name}( on ${name})?$`).test(title))).toEqual([]);
  expect(titles).toHaveLength(10);
});

async function stored(id: string): Promise<{ text: string; kind: string; payload: unknown }> {
  const { rows } = await db.query<{ text: string; kind: string; payload: unknown }>(
    `SELECT payload::text AS text, jsonb_typeof(payload) AS kind, payload
       FROM ${db.quoted}.messages WHERE id = $1`,
    [id],
  );
  return only(rows);
}

async function traces(topic: string): Promise<{ effects: string[]; messages: string[] }> {
  const { rows } = await db.query<{ effects: string[]; messages: string[] }>(
    `SELECT ARRAY(SELECT name FROM effects WHERE name LIKE $1 || '%' ORDER BY name) AS effects,
            ARRAY(SELECT payload ->> 'name' FROM ${db.quoted}.messages WHERE topic = $1 ORDER BY 1) AS messages`,
    [topic],
  );
  return only(rows);
}

describe.each(cases)('%s, %s', (_title, way, library: Library) => {
  let opened: Opened<TransactionHandle>;
  beforeAll(async () => {
    opened = await library.open(way === 'directly' ? db.url : (pooled?.url ?? ''));
  });
  afterAll(async () => opened?.close());

  /** Each test has its own topic, so tests do not see each other's messages. */
  const newTopic = () => `topic-${randomUUID()}`;

  async function both(tx: TransactionHandle, topic: string, what: string) {
    const name = `${topic} ${what}`;
    await opened.insert(tx, name);
    return outbox.enqueue(tx, { topic, payload: { name } });
  }

  test('M1 a commit keeps the effects and the message', async () => {
    const topic = newTopic();
    const { id, duplicate } = await opened.transaction(async (tx) => {
      const enqueued = await both(tx, topic, 'kept');
      expect(await traces(topic), 'before the commit').toEqual({ effects: [], messages: [] });
      return enqueued;
    });
    expect(duplicate).toBe(false);
    const names = [`${topic} kept`];
    expect(await traces(topic)).toEqual({ effects: names, messages: names });
    expect(await stored(id)).toMatchObject({ payload: { name: names[0] } });
  });

  test('M1 a rollback keeps neither', async () => {
    const topic = newTopic();
    const work = opened.transaction(async (tx) => {
      await both(tx, topic, 'gone');
      throw new Error('changed my mind');
    });
    await expect(work).rejects.toThrow('changed my mind');
    expect(await traces(topic)).toEqual({ effects: [], messages: [] });
  });

  test('M1 a nested transaction that rolls back removes its own message and no other', async () => {
    const topic = newTopic();
    await opened.transaction(async (tx) => {
      await both(tx, topic, 'a before');
      const inner = opened.nested(tx, async (nested) => {
        await both(nested, topic, 'inside');
        throw new Error('only this part');
      });
      await expect(inner).rejects.toThrow('only this part');
      await both(tx, topic, 'b after');
    });
    const names = [`${topic} a before`, `${topic} b after`];
    expect(await traces(topic)).toEqual({ effects: names, messages: names });
  });

  test('M1 a nested transaction that commits keeps its message', async () => {
    const topic = newTopic();
    await opened.transaction((tx) => opened.nested(tx, (inner) => both(inner, topic, 'inside')));
    expect((await traces(topic)).messages).toEqual([`${topic} inside`]);
  });

  test('M2 a thousand messages in one call return their ids in order', async () => {
    const topic = newTopic();
    const messages = Array.from({ length: 1000 }, (_, n) => ({
      topic,
      key: topic,
      payload: { n },
    }));
    const enqueued = await opened.transaction((tx) => outbox.enqueueMany(tx, messages));
    expect(enqueued.map(({ sequence }) => sequence)).toEqual(messages.map((_, n) => String(n + 1)));
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.messages WHERE topic = $1 ORDER BY (payload -> 'n')::int`,
      [topic],
    );
    expect(rows.map(({ id }) => id)).toEqual(enqueued.map(({ id }) => id));
  });

  test('M3 a duplicate is reported with the id of the first', async () => {
    const topic = newTopic();
    const message = { topic, dedupeKey: 'order-1' };
    const first = await opened.transaction((tx) => outbox.enqueue(tx, message));
    const [again, other] = await opened.transaction((tx) =>
      outbox.enqueueMany(tx, [message, { topic, dedupeKey: 'order-2' }]),
    );
    expect(first.duplicate).toBe(false);
    expect(again).toMatchObject({ id: first.id, duplicate: true });
    expect(other).toMatchObject({ duplicate: false });
  });

  test('M2 text arrives unchanged, including what drivers treat as placeholders', async () => {
    const payload = { [hostile]: [hostile] };
    const headers = { note: hostile };
    const { id } = await opened.transaction((tx) =>
      outbox.enqueue(tx, { topic: newTopic(), key: hostile, headers, payload }),
    );
    const { rows } = await db.query(
      `SELECT key, headers, payload FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    expect(only(rows)).toMatchObject({ key: hostile, headers, payload });
  });

  test('M2 JSON arrives unchanged, and numbers keep every digit', async () => {
    const payloadText = '{"amount": 12345678901234567890.123, "small": 1e-30}';
    const [exact, object, list, text] = await opened.transaction((tx) =>
      outbox.enqueueMany(tx, [
        { topic: newTopic(), payloadText },
        { topic: newTopic(), payload: { a: { b: [1, null, true] } } },
        { topic: newTopic(), payload: [1, 2] },
        { topic: newTopic(), payload: '{"not": "an object"}' },
      ]),
    );
    expect((await stored(exact?.id ?? '')).text).toBe(
      '{"small": 0.000000000000000000000000000001, "amount": 12345678901234567890.123}',
    );
    expect(await stored(object?.id ?? '')).toMatchObject({
      kind: 'object',
      payload: { a: { b: [1, null, true] } },
    });
    expect((await stored(list?.id ?? '')).kind).toBe('array');
    expect((await stored(text?.id ?? '')).kind).toBe('string');
  });

  test('M1 outside a transaction a message is refused with a remedy, unless the caller asks for its own transaction', async () => {
    const topic = newTopic();
    const outside = outbox.enqueue(opened.outside, { topic });
    await expect(outside).rejects.toThrow(NoTransactionError);
    await expect(outside).rejects.toThrow(/not in a transaction.*(Run BEGIN|Give the \w+ that)/s);
    await expect(
      inbox.process(opened.outside, { consumer: 'c', messageId: randomUUID() }, () => 1),
    ).rejects.toThrow(NoTransactionError);
    expect((await traces(topic)).messages).toEqual([]);
    await outbox.enqueue(
      opened.outside,
      { topic, payload: { name: 'alone' } },
      { autonomous: true },
    );
    expect((await traces(topic)).messages).toEqual(['alone']);
  });

  test('M1 a handle used after its transaction is refused, by its library or by Waybill', async () => {
    const topic = newTopic();
    const kept = await opened.transaction((tx) => Promise.resolve([tx]));
    await expect(outbox.enqueue(only(kept), { topic })).rejects.toThrow(
      /not in a transaction|already (closed|committed|complete|released)/,
    );
    expect((await traces(topic)).messages).toEqual([]);
  });

  test('M1 a message that was not awaited does not survive the rollback of its transaction', async () => {
    const topic = newTopic();
    let late: Promise<unknown> | undefined;
    const work = opened.transaction(async (tx) => {
      await opened.insert(tx, `${topic} gone`);
      late = outbox.enqueue(tx, { topic, payload: { name: 'late' } }).catch(() => undefined);
      throw new Error('changed my mind');
    });
    await expect(work).rejects.toThrow('changed my mind');
    // behind a pooler, postgres.js sometimes never answers a query of a transaction that has ended
    await Promise.race([late, delay(5000, undefined, { ref: false })]);
    expect(await traces(topic)).toEqual({ effects: [], messages: [] });
  });

  test('M1 a refused message gives the reason, and its transaction continues', async () => {
    const topic = newTopic();
    await opened.transaction(async (tx) => {
      const refused = outbox.enqueue(tx, { topic, tenantId: 'acme', dedupeKey: 'order-1' });
      await expect(refused).rejects.toThrow(MessageRefusedError);
      await expect(refused).rejects.toThrow(/must begin with the tenantId and a slash: "acme\/…"/);
      await both(tx, topic, 'after it');
    });
    expect((await traces(topic)).messages).toEqual([`${topic} after it`]);
  });

  test('M1 a database error is passed on, and nothing is stored', async () => {
    const topic = newTopic();
    const nowhere = createOutbox({ schema: 'nowhere' });
    const work = opened.transaction(async (tx) => {
      await both(tx, topic, 'before it');
      await nowhere.enqueue(tx, { topic });
    });
    const error: unknown = await work.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(Error);
    expect(inspect(error, { depth: 6 })).toContain('schema "nowhere" does not exist');
    expect(await traces(topic)).toEqual({ effects: [], messages: [] });
  });

  test('M11 the inbox runs the work once, and again only after a rollback', async () => {
    const topic = newTopic();
    const received = { consumer: topic, messageId: randomUUID(), key: 'k', sequence: '3' };
    const process = (name: string, fail = false) =>
      opened.transaction((tx) =>
        inbox.process(tx, { ...received, previousSequence: '2' }, async () => {
          await opened.insert(tx, `${topic} ${name}`);
          if (fail) throw new Error('the work failed');
          return name;
        }),
      );
    await expect(process('failed', true)).rejects.toThrow('the work failed');
    const before = Date.now() - 60_000;
    expect(await process('done')).toEqual({
      processed: true,
      value: 'done',
      gap: { kind: 'missing', expectedSequence: '2', lastSequence: '0' },
    });
    const again = await process('twice');
    expect(again).toMatchObject({ processed: false });
    const { firstProcessedAt } = again as { firstProcessedAt: Date };
    expect(firstProcessedAt.getTime()).toBeGreaterThan(before);
    expect((await traces(topic)).effects).toEqual([`${topic} done`]);
  });

  test('M11 the inbox accepts a thousand messages in one call', async () => {
    const messages = Array.from({ length: 1000 }, () => ({ id: randomUUID() as string }));
    const consumer = { consumer: newTopic() };
    const count = (some: typeof messages) =>
      opened.transaction((tx) => inbox.processMany(tx, consumer, some, (fresh) => fresh.length));
    expect((await count(messages.slice(0, 400))).value).toBe(400);
    expect((await count(messages)).value).toBe(600);
    expect((await count(messages)).value).toBeUndefined();
  });

  test('endpoints are added and listed through the same handle', async () => {
    const secretKey = Buffer.alloc(32, 7).toString('base64');
    const endpoints = createEndpoints({ schema: db.schema, secretKey });
    const tenantId = newTopic();
    const endpoint = { tenantId, url: 'https://customer.example/hook', topics: ['order.*'] };
    const { name } = await opened.transaction((tx) => endpoints.add(tx, endpoint));
    const listed = await opened.transaction((tx) => endpoints.list(tx, { tenantId }));
    expect(only(listed)).toMatchObject({ ...endpoint, name, enabled: true, waiting: 0 });
    await opened.transaction((tx) => endpoints.disable(tx, { name }, { reason: hostile }));
    await opened.transaction((tx) => endpoints.remove(tx, { name, tenantId }));
    expect(await opened.transaction((tx) => endpoints.list(tx, { tenantId }))).toEqual([]);
  });
});

describe.each(libraries.map((library) => [library.title, library] as const))(
  '%s, in a schema whose name looks like placeholders',
  (_title, library) => {
    beforeAll(() => migrateUp({ url: db.url, schema: oddSchema }));

    test('M2 a message is enqueued and the inbox processes it', async () => {
      const opened = await library.open(db.url);
      const message = { topic: 'odd', payload: { hostile }, dedupeKey: randomUUID() };
      const consumer = { consumer: 'odd', messageId: randomUUID() };
      try {
        const { id, reception } = await opened.transaction(async (tx) => ({
          ...(await createOutbox({ schema: oddSchema }).enqueue(tx, message)),
          reception: await createInbox({ schema: oddSchema }).process(tx, consumer, () => 'done'),
        }));
        expect(reception).toMatchObject({ processed: true, value: 'done' });
        const { rows } = await db.query(
          `SELECT payload FROM "${oddSchema.replaceAll('"', '""')}".messages WHERE id = $1`,
          [id],
        );
        expect(rows).toEqual([{ payload: { hostile } }]);
      } finally {
        await opened.close();
      }
    });
  },
);
