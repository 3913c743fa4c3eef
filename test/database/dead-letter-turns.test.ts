// Whoever retries, skips or discards dead letters takes turns with the others. A turn lasts as long as its transaction,
// and somebody may have left one open: the others wait for a while and then say for whom.

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

it('M5 P2 of two who skip at once the second goes on where the first ends', async () => {
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
  'M5 who cannot have a turn for %s in time is told whose transaction is open, and has changed nothing',
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
  'M5 nobody waits for ever, whatever the session allows: lock_timeout %s',
  async (lockTimeout) => {
    const queue = await makeQueue(db);
    await makeDead(queue, 2, 'no');
    const first = await begun();
    await change(first, 'retry', queue.name);
    const second = await begun();
    await second.query(`SET LOCAL lock_timeout = '${lockTimeout}'`);
    const wait = `SELECT ${db.quoted}.await_dead_letters('50 ms')`;
    await second.query('SAVEPOINT before');
    await expect(second.query(wait)).rejects.toMatchObject({ code: '55P03' });
    await second.query('ROLLBACK TO before');
    await first.query('COMMIT');
    await second.query(wait);
    const { rows } = await second.query('SHOW lock_timeout');
    expect(rows, 'what comes behind it waits as before').toEqual([{ lock_timeout: lockTimeout }]);
    await second.query('COMMIT');
  },
);

it('M5 a turn that had to be waited for leaves the limit of the session as it was', async () => {
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
