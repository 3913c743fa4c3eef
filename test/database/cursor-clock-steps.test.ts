// Steps back of the clock in the log: producers record them concurrently, and a subscription still reads every message
// once and each key in order. The rows are written as a clock that ran ahead would write them.

import type pg from 'pg';
import { expect, test } from 'vitest';

import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { collect } from '../support/streams.js';
import type { Collected } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ eachTestFrom: async () => {} });

async function enqueue(key: string, on: Pick<pg.Client, 'query'> = db.pool): Promise<void> {
  await on.query(`SELECT ${db.quoted}.enqueue('clock.test', key => $1)`, [key]);
}

/** Makes the clock look as if it had been an hour ahead when these messages were enqueued, and corrected since. */
async function stepBack(): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.messages SET id = ${db.quoted}.id_at(${db.quoted}.id_time(id) + interval '1 hour')`,
  );
  await db.query(`UPDATE ${db.quoted}.keys SET last_used_at = last_used_at + interval '1 hour'`);
}

/** A transaction that already has its id. */
async function begin(): Promise<{ client: pg.Client; xid: string }> {
  const client = await db.connect();
  await client.query('BEGIN');
  const { rows } = await client.query<{ xid: string }>('SELECT pg_current_xact_id()::text AS xid');
  return { client, xid: only(rows).xid };
}

/** Takes the next transaction id and ends, so snapshots reach beyond the transactions that have an id. */
async function endLaterTransaction(): Promise<void> {
  await db.query('SELECT pg_current_xact_id()');
}

/** Waits until the log was read to its end, and returns the messages in order of arrival: 'a1', 'b1' … */
async function readAll({ messages }: Collected): Promise<string[]> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int FROM ${db.quoted}.messages`,
  );
  await waitFor(() => new Set(messages.map(({ id }) => id)).size === only(rows).count, {
    what: 'the whole log',
  });
  return messages.map(({ key, sequence }) => `${key}${sequence}`);
}

test('N4 two producers record a step at the same time, and the subscription reads everything once', async () => {
  await enqueue('a');
  await enqueue('b');
  await stepBack();
  const one = await begin();
  const two = await begin();
  await endLaterTransaction();
  await enqueue('a', one.client);
  await enqueue('b', two.client);
  await one.client.query('COMMIT');
  await two.client.query('COMMIT');
  for (let count = 0; count < 5; count += 1) await enqueue('c');

  const read = await readAll(await collect(db, { batchSize: 1 }));
  expect(read.slice(0, 4)).toEqual(['a1', 'b1', 'a2', 'b2']);
  expect(read.slice(4)).toEqual(['c1', 'c2', 'c3', 'c4', 'c5']);
});

test('P2 N4 a transaction that got its id before others ended is read after the step that it records', async () => {
  await enqueue('a');
  await stepBack();
  const { client, xid } = await begin();
  await endLaterTransaction();
  await client.query('SAVEPOINT inner_one');
  await enqueue('a', client);
  await client.query('RELEASE SAVEPOINT inner_one');
  await client.query('COMMIT');
  const { rows } = await db.query(
    `SELECT pg_visible_in_snapshot($1::text::xid8, snapshot) AS visible FROM ${db.quoted}.clock_steps`,
    [xid],
  );
  expect(rows).toEqual([{ visible: false }]);
  expect(await readAll(await collect(db, { batchSize: 1 }))).toEqual(['a1', 'a2']);
});

test('N4 overlapping steps do not make a cursor go back', async () => {
  const one = await begin();
  const two = await begin();
  await enqueue('a', one.client);
  await enqueue('b', two.client);
  await one.client.query('COMMIT');
  await two.client.query('COMMIT');
  await db.query(
    `INSERT INTO ${db.quoted}.clock_steps (snapshot, ends)
     SELECT format('%s:%s:%s', $1::text, e.ends, open)::pg_snapshot, e.ends::text::xid8
       FROM (SELECT $2::text::bigint + 1 AS ends) e, unnest(ARRAY[$1::text, $2::text]) open`,
    [one.xid, two.xid],
  );
  await enqueue('c');
  const read = await readAll(await collect(db, { batchSize: 1 }));
  expect(read.toSorted()).toEqual(['a1', 'b1', 'c1']);
});

test('P2 N4 a step that is recorded while a window is opened does not end up within the window', async () => {
  await enqueue('a');
  await stepBack();
  const { client, xid } = await begin();
  await client.query(`LOCK TABLE ${db.quoted}.clock_steps IN ACCESS EXCLUSIVE MODE`);
  const opened = db.query<{ visible: boolean }>(
    `SELECT pg_visible_in_snapshot($1::text::xid8, w.target) AS visible
       FROM ${db.quoted}.open_window(${db.quoted}.nothing_seen()) w`,
    [xid],
  );
  await waitFor(
    async () => {
      const { rowCount } = await db.query(
        `SELECT FROM pg_locks WHERE NOT granted AND relation = $1::regclass`,
        [`${db.quoted}.clock_steps`],
      );
      return rowCount === 1;
    },
    { what: 'a reader that looks for steps' },
  );
  await enqueue('a', client);
  await client.query('COMMIT');
  expect((await opened).rows).toEqual([{ visible: false }]);
});

test('N4 a cursor that is reset to now reads what the same transaction enqueues', async () => {
  const first = await collect(db, { name: 'own' });
  await first.subscription.stop();
  const { client } = await begin();
  await endLaterTransaction();
  await client.query(`SELECT ${db.quoted}.reset_cursor('own', 'now')`);
  await enqueue('a', client);
  await client.query('COMMIT');
  expect(await readAll(await collect(db, { name: 'own' }))).toEqual(['a1']);
});
