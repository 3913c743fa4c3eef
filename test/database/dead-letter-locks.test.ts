// Lock of dead letters: retry, skip and discard are serialized. A transaction that stays open keeps the lock, so other
// operators wait for a limited time, and the error then names the holder.

import type pg from 'pg';
import { expect, it } from 'vitest';

import { makeBlocked, makeDead } from '../support/letters.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Connection } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

async function change(on: Connection, verb: string, destination: string): Promise<number> {
  const { rows } = await on.query<{ count: number }>(
    `SELECT ${db.quoted}.${verb}_dead_letters($1, max_count => 1) AS count`,
    [destination],
  );
  return only(rows).count;
}

async function begun(): Promise<pg.Client> {
  const client = await db.connect();
  await client.query('BEGIN');
  return client;
}

it('M5 P2 a second concurrent skip waits for the first, and then skips the remaining letters', async () => {
  const queue = await makeQueue(db, { whenDead: 'block' });
  for (const key of ['a', 'b']) await makeBlocked(queue, key);
  const [first, second] = [await begun(), await db.connect()];
  expect(await change(first, 'skip', queue.name)).toBe(1);
  const backend = await backendId(second);
  const skipped = change(second, 'skip', queue.name);
  await waitUntilBlocked(db, backend);
  await first.query('COMMIT');
  expect(await skipped).toBe(1);
  expect(await change(second, 'skip', queue.name)).toBe(0);
});

it.each(['retry', 'discard', 'skip'])(
  'M5 a %s that waits too long for the lock fails, names the session that holds it, and changes nothing',
  async (verb) => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    await makeBlocked(queue, 'a');
    const first = await begun();
    await change(first, 'retry', queue.name);
    const second = await begun();
    await second.query("SET lock_timeout = '50ms'");
    const holder = await backendId(first);
    await expect(change(second, verb, queue.name)).rejects.toMatchObject({
      code: '55P03',
      message: expect.stringContaining(`by session ${holder} in a transaction`) as string,
      hint: `To end it: SELECT pg_terminate_backend(${holder}).`,
    });
    await first.query('ROLLBACK');
    await second.query('ROLLBACK');
    expect(await change(second, verb, queue.name)).toBe(1);
  },
);

it.each(['0', '1h'])(
  'M5 the wait for the lock is limited whatever lock_timeout the session has: %s',
  async (lockTimeout) => {
    const queue = await makeQueue(db);
    await makeDead(queue, 2, 'no');
    const first = await begun();
    await change(first, 'retry', queue.name);
    const second = await begun();
    await second.query(`SET LOCAL lock_timeout = '${lockTimeout}'`);
    const wait = `SELECT ${db.quoted}.lock_dead_letters('50 ms')`;
    await second.query('SAVEPOINT before');
    await expect(second.query(wait)).rejects.toMatchObject({ code: '55P03' });
    await second.query('ROLLBACK TO before');
    await first.query('COMMIT');
    await second.query(wait);
    const { rows } = await second.query('SHOW lock_timeout');
    expect(rows, 'messages behind it wait as before').toEqual([{ lock_timeout: lockTimeout }]);
    await second.query('COMMIT');
  },
);

it("M5 waiting for the lock leaves the session's lock_timeout unchanged", async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 2, 'no');
  const [first, second] = [await begun(), await begun()];
  await change(first, 'retry', queue.name);
  const backend = await backendId(second);
  const retried = change(second, 'retry', queue.name);
  await waitUntilBlocked(db, backend);
  await first.query('COMMIT');
  expect(await retried).toBe(1);
  expect((await second.query('SHOW lock_timeout')).rows).toEqual([{ lock_timeout: '0' }]);
  await second.query('COMMIT');
});

it('M5 a restore that waits too long for a replay fails, and dead letters can be changed meanwhile', async () => {
  const queue = await makeQueue(db);
  const [discarded = ''] = await makeDead(queue, 2, 'no');
  await db.query(`SELECT ${db.quoted}.discard_dead_letters(ids => $1)`, [[discarded]]);
  const replaying = await begun();
  await replaying.query(`SELECT ${db.quoted}.take_lock('move')`);
  const holder = await backendId(replaying);
  const restoring = await begun();
  await restoring.query("SET lock_timeout = '1s'");
  const restore = `SELECT ${db.quoted}.restore_dead_letters(ids => $1) AS count`;
  const backend = await backendId(restoring);
  const failure = restoring
    .query(restore, [[discarded]])
    .then(() => 'restored')
    .catch((error: unknown) => error);
  await waitUntilBlocked(db, backend);
  const other = await begun();
  await other.query("SET lock_timeout = '50ms'");
  expect(await change(other, 'retry', queue.name)).toBe(1);
  await other.query('COMMIT');
  expect(await failure).toMatchObject({
    code: '55P03',
    message: expect.stringContaining(
      `messages are being replayed or moved by session ${holder}`,
    ) as string,
  });
  await restoring.query('ROLLBACK');
  await replaying.query('ROLLBACK');
  expect(only((await restoring.query(restore, [[discarded]])).rows)).toEqual({ count: 1 });
});
