// One reader of the log, and a pause, a failure or a stop while one of its statements is in flight.

import { expect, onTestFinished, test } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { defineSubscription } from '../../src/database/cursors.js';
import { resolveRetryPolicy } from '../../src/core/retry-policy.js';
import { StreamReader } from '../../src/relay/log/stream-reader.js';
import { StreamSender } from '../../src/relay/log/stream-sender.js';
import type { StreamHandler } from '../../src/consumer/subscribe.js';
import { urlAs } from '../support/logins.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { cursorName, enqueue, snapshotWithoutOpenTransactions } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

type Before = (what: string) => Promise<void> | void;

/** Reports which statement comes next, and waits until it may run. */
class WatchedDatabase extends Database {
  before: Before = () => {};

  override async query<Row extends object>(
    what: string,
    sql: string,
    values?: unknown[],
  ): Promise<Row[]> {
    await this.before(what);
    return super.query<Row>(what, sql, values);
  }
}

type Reading = {
  name: string;
  topic: string;
  work: WatchedDatabase;
  control: WatchedDatabase;
  reader: StreamReader;
};

/** A reader that is not started yet. */
async function readerOf(topic: string, handle: StreamHandler, batchSize = 1): Promise<Reading> {
  const name = cursorName();
  const options = resolveDatabaseOptions({ url: urlAs(db.url, 'test_relay'), schema: db.schema });
  const settings = { connections: 4, applicationName: 'reader' };
  const work = new WatchedDatabase(options, settings);
  const control = new WatchedDatabase(options, settings);
  const retry = resolveRetryPolicy('retry', { maxAttempts: 1000, baseMs: 1, maxMs: 1 });
  const filters = [{ topic }];
  await defineSubscription(control, name, 'now', filters, retry);
  await db.query(`UPDATE ${db.quoted}.cursors SET seen = $2::pg_snapshot WHERE name = $1`, [
    name,
    await snapshotWithoutOpenTransactions(db),
  ]);
  const emit = () => {};
  const reader = new StreamReader({
    cursor: name,
    database: work,
    control,
    // long enough for a busy machine: a reader that loses its lease reads single messages, and waits for each move
    reader: { id: crypto.randomUUID(), name: 'test', leaseMs: 3000 },
    batchSize,
    batchBytes: 1_000_000,
    pollMs: 5,
    senderOf: ({ partition }) =>
      new StreamSender({
        cursor: name,
        partition,
        deliver: async (messages, context) => {
          await handle(messages, context);
          return { done: messages.length };
        },
        timeoutMs: 30_000,
        maxAttempts: 1000,
        whenExhausted: 'block',
        emit,
      }),
    emit,
  });
  onTestFinished(async () => {
    await reader.stop(performance.now());
    await Promise.all([work.close(), control.close()]);
  });
  return { name, topic, work, control, reader };
}

async function setPaused(name: string, paused: boolean): Promise<void> {
  await db.query(`SELECT ${db.quoted}.set_paused($1, $2)`, [name, paused]);
}

/** Waits until the reader has released the cursor. */
async function untilReleased({ reader }: Reading): Promise<void> {
  await waitFor(() => !reader.reading, { what: 'the reader to release the cursor' });
}

type CursorRow = { position: string | null; free: boolean; tries: number };

async function cursorRow(name: string): Promise<CursorRow> {
  const { rows } = await db.query<CursorRow>(
    `SELECT c.position, h.holder IS NULL AS free, c.tries
       FROM ${db.quoted}.cursors c JOIN ${db.quoted}.holds h ON h.name = 'cursor ' || c.name WHERE c.name = $1`,
    [name],
  );
  return only(rows);
}

type Gate = { readonly opened: Promise<void>; open: () => void };

function gate(): Gate {
  let open: () => void = () => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

/** Longer than the reader takes for its next statement, if it does not wait. */
async function someRoundTrips(): Promise<void> {
  for (let count = 0; count < 20; count += 1) await db.query('SELECT 1');
}

test('N4 a pause in a window without matches so far loses none of its later messages', async () => {
  const topic = 'pause.sparse';
  const got: string[] = [];
  const reading = await readerOf(topic, (messages) => {
    got.push(...messages.map(({ id }) => id));
  });
  // more messages than one plan of the window covers, and none of them matches
  await db.query(
    `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
     SELECT 2, ${db.quoted}.new_id(), now(), pg_current_xact_id(), 'default', 'other', '{}' FROM generate_series(1, 7000)`,
  );
  const wanted = await enqueue(db, db.pool, { topic });
  let paused = false;
  reading.work.before = async (what) => {
    if (what !== 'plan window' || paused) return;
    paused = true;
    await setPaused(reading.name, true);
    let extended = 0;
    await new Promise<void>((resolve) => {
      reading.control.before = (also) => {
        // when the second extension is sent, the reader knows from the first that the cursor is paused
        if (also === 'extend cursor' && (extended += 1) > 1) resolve();
      };
    });
  };
  await reading.reader.start();
  await untilReleased(reading);
  expect(got).toEqual([]);
  await setPaused(reading.name, false);
  await waitFor(() => got.length > 0, { what: 'the message of the topic' });
  expect(got).toEqual(wanted);
});

test('N4 a stopping reader releases its cursor after its last move, so the next reader does not wait for the lease', async () => {
  const topic = 'stop.move';
  const { opened, open } = gate();
  const second = gate();
  const aborted = gate();
  let calls = 0;
  const { name, work, reader } = await readerOf(topic, async (_messages, { signal }) => {
    calls += 1;
    if (calls === 1) return;
    second.open();
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
    aborted.open();
  });
  const [first] = await enqueue(db, db.pool, { topic }, { topic });
  work.before = async (what) => {
    if (what === 'move cursor') await opened;
  };
  await reader.start();
  await second.opened;
  const stopping = reader.stop(performance.now());
  await aborted.opened;
  await someRoundTrips();
  open();
  await stopping;
  await waitFor(
    async () => {
      const { position, free } = await cursorRow(name);
      return position === first && free;
    },
    { what: 'the move, and a cursor that is free' },
  );
});

test('N4 a failure is recorded after the move in flight, which would erase it', async () => {
  const topic = 'failure.move';
  const { opened, open } = gate();
  const failed = gate();
  const asked: string[] = [];
  let calls = 0;
  const { name, work, reader } = await readerOf(topic, () => {
    calls += 1;
    if (calls === 1) return;
    failed.open();
    throw new Error('no');
  });
  await enqueue(db, db.pool, { topic }, { topic });
  work.before = async (what) => {
    asked.push(what);
    if (what === 'move cursor') await opened;
  };
  await reader.start();
  await failed.opened;
  await someRoundTrips();
  expect(asked).toContain('move cursor');
  expect(asked).not.toContain('note failure');
  open();
  await waitFor(async () => (await cursorRow(name)).tries > 0, { what: 'the failure' });
});

test('N4 a failure among messages whose ids are not in sequence order does not undo earlier pages', async () => {
  const topic = 'order.back';
  const { name, reader } = await readerOf(
    topic,
    (messages) => {
      if (messages.some(({ sequence }) => sequence === '4')) throw new Error('no');
    },
    2,
  );
  const { rows } = await db.query<{ id: string }>(
    `WITH ids AS (SELECT ${db.quoted}.new_id() AS id FROM generate_series(1, 4)),
          placed AS (SELECT id, (ARRAY[1, 2, 4, 3])[row_number() OVER (ORDER BY id)] AS sequence FROM ids)
     INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, sequence, namespace, topic, key, payload)
     SELECT 2, id, clock_timestamp(), pg_current_xact_id(), sequence, 'default', $1, 'k', '{}' FROM placed ORDER BY id
     RETURNING id`,
    [topic],
  );
  await reader.start();
  const row = await waitFor(
    async () => {
      const found = await cursorRow(name);
      return found.tries > 0 && found;
    },
    { what: 'the failure' },
  );
  expect(row.position).toBe(rows[1]?.id);
});

test('N4 a pause holds while a message is retried again and again', async () => {
  const topic = 'pause.failing';
  const reading = await readerOf(topic, () => {
    throw new Error('no');
  });
  await enqueue(db, db.pool, { topic });
  await reading.reader.start();
  await waitFor(async () => (await cursorRow(reading.name)).tries > 1, { what: 'a failure' });
  await setPaused(reading.name, true);
  await untilReleased(reading);
});
