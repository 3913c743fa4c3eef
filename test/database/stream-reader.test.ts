// One reader of the log, and what happens while a statement of it is on its way: a pause, a failure, a stop.

import { expect, onTestFinished, test } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { defineSubscription } from '../../src/database/cursors.js';
import { resolveRetryPolicy } from '../../src/model/retry-policy.js';
import { StreamReader } from '../../src/relay/stream-reader.js';
import { StreamSender } from '../../src/relay/stream-sender.js';
import type { StreamHandler } from '../../src/subscribe.js';
import { urlAs } from '../support/logins.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { cursorName, enqueue } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

type Before = (what: string) => Promise<void> | void;

/** Says which statement comes next, and waits until it may. */
class WatchedDatabase extends Database {
  before: Before = () => {};

  override async query<Row extends Record<string, unknown>>(
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

/** A reader that has yet to start. */
async function readerOf(topic: string, handle: StreamHandler, batchSize = 1): Promise<Reading> {
  const name = cursorName();
  const options = resolveDatabaseOptions({ url: urlAs(db.url, 'test_relay'), schema: db.schema });
  const settings = { connections: 4, applicationName: 'reader' };
  const work = new WatchedDatabase(options, settings);
  const control = new WatchedDatabase(options, settings);
  const retry = resolveRetryPolicy('retry', { maxAttempts: 1000, baseMs: 1, maxMs: 1 });
  const filters = [{ topic }];
  await defineSubscription(control, name, 'now', filters, retry);
  const emit = () => {};
  const reader = new StreamReader({
    cursor: name,
    filters,
    database: work,
    control,
    // long enough to be held on a busy machine: who loses it goes on with caution, and waits for each move
    reader: { id: crypto.randomUUID(), name: 'test', leaseMs: 3000 },
    batchSize,
    batchBytes: 1_000_000,
    pollMs: 5,
    sender: new StreamSender({
      cursor: name,
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

/** Until the reader has given the cursor up. */
async function givenUp({ reader }: Reading): Promise<void> {
  await waitFor(() => !reader.reading, { what: 'the reader to give the cursor up' });
}

type CursorRow = { position: string | null; free: boolean; tries: number };

async function cursorRow(name: string): Promise<CursorRow> {
  const { rows } = await db.query<CursorRow>(
    `SELECT position, leased_until = '-infinity' AS free, tries FROM ${db.quoted}.cursors WHERE name = $1`,
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

test('N4 a pause in the middle of a window that has held nothing yet skips none of the rest', async () => {
  const topic = 'pause.sparse';
  const got: string[] = [];
  const reading = await readerOf(topic, (messages) => {
    got.push(...messages.map(({ id }) => id));
  });
  // more than one plan looks at
  await db.query(
    `INSERT INTO ${db.quoted}.messages (id, created_at, transaction_id, namespace, topic, payload)
     SELECT ${db.quoted}.new_id(), now(), pg_current_xact_id(), 'default', 'other', '{}' FROM generate_series(1, 7000)`,
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
        // the answer to the first is known when the second is asked
        if (also === 'extend cursor' && (extended += 1) > 1) resolve();
      };
    });
  };
  await reading.reader.start();
  await givenUp(reading);
  expect(got).toEqual([]);
  await setPaused(reading.name, false);
  await waitFor(() => got.length > 0, { what: 'what was wanted' });
  expect(got).toEqual(wanted);
});

test('N4 a reader that stops gives its cursor up after its last move: nobody has to wait for the end of the lease', async () => {
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

test('N4 a failure is noted after the move that is on its way, which would erase it', async () => {
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

test('N4 a failure among messages whose ids are not in the order of their key does not take back the pages before', async () => {
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
     INSERT INTO ${db.quoted}.messages (id, created_at, transaction_id, sequence, namespace, topic, key, payload)
     SELECT id, clock_timestamp(), pg_current_xact_id(), sequence, 'default', $1, 'k', '{}' FROM placed ORDER BY id
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

test('N4 a pause holds while a message is tried again and again', async () => {
  const topic = 'pause.failing';
  const reading = await readerOf(topic, () => {
    throw new Error('no');
  });
  await enqueue(db, db.pool, { topic });
  await reading.reader.start();
  await waitFor(async () => (await cursorRow(reading.name)).tries > 1, { what: 'a failure' });
  await setPaused(reading.name, true);
  await givenUp(reading);
});
