// The inbox with many messages in one call: one statement, each message once, in the given order.

import { randomUUID } from 'node:crypto';

import { expect, it } from 'vitest';

import { createInbox } from '../../src/index.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const inbox = createInbox({ schema: db.schema });

const messages = (count: number) => Array.from({ length: count }, () => ({ id: randomUUID() }));

it('M11 the work gets the new messages in order, and the result says which were new', async () => {
  const [a, b, c, d] = messages(4) as [
    { id: string },
    { id: string },
    { id: string },
    { id: string },
  ];
  await db.inTransaction((client) =>
    inbox.process(client, { consumer: 'batch', messageId: b.id }, () => {}),
  );
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

it('M11 without new messages the work is not run', async () => {
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
    readyForQuery: true,
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
  await inbox.process(blocker, { consumer: 'crossing', messageId: batch[1]?.id ?? '' }, () => {});
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
  // in the given order, each would lock its first message and then wait for the other's
  const forwards = await begin(batch);
  const backwards = await begin(batch.toReversed());
  await blocker.query('ROLLBACK');
  const answers = await Promise.all([forwards.ended, backwards.ended]);
  expect(answers.map(({ value }) => value)).toEqual([3, undefined]);
});
