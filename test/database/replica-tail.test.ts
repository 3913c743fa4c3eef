// A tail that reads from a standby: late commits are shown, each event once, and the standby does the reading. The
// standby's own list of running transactions is not enough for that, as the first test shows.

import { setTimeout as delay } from 'node:timers/promises';

import type pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import type { Replica } from '../../src/features/replicas/replica.js';
import { Tail } from '../../src/listing/tail.js';
import { urlAs } from '../support/logins.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { openReplica, replicatedDatabase } from '../support/replication.js';
import { settleDelivered } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = replicatedDatabase();

type Following = { events: () => Promise<string[]>; replica: Replica };

async function follow(queue: Queue): Promise<Following> {
  const { database, replica } = await openReplica(db, { login: 'test_auditor' });
  const tail = await Tail.start(database, { topic: queue.topic }, replica);
  return {
    replica,
    events: async () => {
      const { events } = await tail.look(10_000);
      return events.map(({ event, messageId }) => `${event} ${messageId}`);
    },
  };
}

async function begin(): Promise<pg.Client> {
  const client = await db.connect();
  await client.query('BEGIN');
  return client;
}

describe('a standby alone', () => {
  it('does not list transactions of its primary, and a tail is refused there', async () => {
    const open = await begin();
    const sql = 'SELECT pg_current_snapshot()::text AS snapshot';
    await open.query('SELECT pg_current_xact_id()');
    await open.query(`CREATE TABLE written (id int)`);
    await db.query('CREATE TABLE later (id int)');
    await db.caughtUp();
    const running = /:[^:]+:\d+/;
    const { rows } = await db.query<{ snapshot: string }>(sql);
    expect(only(rows).snapshot).toMatch(running);
    expect(only(await db.onStandby<{ snapshot: string }>(sql)).snapshot).not.toMatch(running);
    await open.query('ROLLBACK');
    const url = urlAs(db.standby.url, 'test_auditor');
    const database = new Database(resolveDatabaseOptions({ url, schema: db.schema }), {
      connections: 1,
      applicationName: 'waybill test',
    });
    onTestFinished(() => database.close());
    await expect(Tail.start(database, {})).rejects.toThrow('DATABASE_REPLICA_URL');
  });
});

describe('a tail with a replica', () => {
  it('shows messages that commit late, and those that were there before, once', async () => {
    const queue = await makeQueue(db);
    const { events, replica } = await follow(queue);
    const late = await begin();
    const [hidden] = await enqueueMany(db, late, [{ topic: queue.topic }]);
    const shown = await queue.enqueueOne();
    expect(await events()).toEqual([`enqueued ${shown}`]);
    expect(await events()).toEqual([]);
    await late.query('COMMIT');
    expect(await events()).toEqual([`enqueued ${hidden?.id}`]);
    expect(await events()).toEqual([]);
    expect(replica.fallbacks).toBe(0);
  });

  it('shows attempts whose transaction commits late, long after they ended', async () => {
    const queue = await makeQueue(db);
    const [first = '', second = ''] = await queue.enqueue(2);
    const one = await queue.claim({ limit: 1 });
    const other = await queue.claim({ limit: 1 });
    const { events, replica } = await follow(queue);
    const late = await begin();
    await settleDelivered(db, one, late);
    await settleDelivered(db, other);
    expect(await events()).toEqual([`delivered ${second}`]);
    // longer than the margin within which everything is read again
    const endedAtMs = Date.now();
    await waitFor(async () => (await events()).length === 0 && Date.now() - endedAtMs > 2500, {
      what: 'the margin to pass',
    });
    await late.query('COMMIT');
    expect(await events()).toEqual([`delivered ${first}`]);
    expect(await events()).toEqual([]);
    expect(replica.fallbacks).toBe(0);
  });

  it('waits for a replica that is behind, or uses the primary: nothing is lost, nothing comes twice', async () => {
    const queue = await makeQueue(db);
    const { events, replica } = await follow(queue);
    await db.pauseReplay();
    const id = await queue.enqueueOne();
    const looking = events();
    await db.resumeReplay();
    expect(await looking).toEqual([`enqueued ${id}`]);
    expect(replica.fallbacks).toBe(0);
    await db.pauseReplay();
    const next = await queue.enqueueOne();
    expect(await events()).toEqual([`enqueued ${next}`]);
    // for its attempts, and for its messages
    expect(replica.fallbacks).toBe(2);
    await db.resumeReplay();
    expect(await events()).toEqual([]);
  });

  it('N9 loses nothing and repeats nothing with many writers, some of them long', async () => {
    const queue = await makeQueue(db);
    const { events, replica } = await follow(queue);
    const expected: string[] = [];
    const writers = Array.from({ length: 4 }, async (_, writer) => {
      const client = await db.connect();
      for (let round = 0; round < 12; round += 1) {
        await client.query('BEGIN');
        const sent = await enqueueMany(db, client, [{ topic: queue.topic }]);
        // transactions of different lengths overlap
        await delay(((writer * 7 + round * 5) % 12) * 10);
        await client.query('COMMIT');
        expected.push(...sent.map(({ id }) => `enqueued ${id}`));
        await client.query('BEGIN');
        const claim = await queue.claim({ limit: 1, on: client });
        await settleDelivered(db, claim, client);
        await delay(((writer * 5 + round * 7) % 12) * 10);
        await client.query('COMMIT');
        expected.push(...claim.ids.map((id) => `delivered ${id}`));
      }
    });
    const state = { writing: true };
    const written = Promise.all(writers).finally(() => (state.writing = false));
    const seen: string[] = [];
    while (state.writing) seen.push(...(await events()));
    await written;
    seen.push(...(await events()));
    expect(expected.length).toBeGreaterThan(60);
    expect(seen.toSorted()).toEqual(expected.toSorted());
    expect(replica.fallbacks).toBe(0);
  });
});
