// A tail shows each event once, in order, including late commits: after others that began later, in the middle of a
// query, under another name, or after many queries.

import { describe, expect, it } from 'vitest';

import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deliverAll } from '../support/replays.js';
import { settleDelivered } from '../support/settling.js';
import { enqueue, randomFrom } from '../support/streams.js';
import { Follower, Past, watched } from '../support/tail.js';

const db = testDatabase();

/** A message that is enqueued and delivered right after the next snapshot is taken, once that is due. */
async function deliveredInALook() {
  const queue = await makeQueue(db);
  const next = { isDue: false };
  const database = watched(db, {
    async after(_rows, what) {
      if (what !== 'take a snapshot' || !next.isDue) return;
      next.isDue = false;
      await queue.enqueueOne();
      await deliverAll(db, queue);
    },
  });
  return { queue, database, next };
}

describe('a tail', () => {
  it('neither misses nor repeats late commits, where a reader by the last id does', async () => {
    const topic = 'late.commit';
    const random = randomFrom(7);
    const tail = await Follower.start(db, { topic });
    let lastId = '00000000-0000-0000-0000-000000000000';
    const naive: string[] = [];
    const lookNaively = async () => {
      const { rows } = await db.query<{ id: string }>(
        `SELECT id FROM ${db.quoted}.messages WHERE topic = $1 AND id > $2 ORDER BY id`,
        [topic, lastId],
      );
      naive.push(...rows.map(({ id }) => id));
      lastId = rows.at(-1)?.id ?? lastId;
    };
    const clients = await Promise.all(Array.from({ length: 5 }, () => db.connect()));
    const open = new Set<(typeof clients)[number]>();
    const written: string[] = [];
    const seen: string[] = [];
    for (let round = 0; round < 120; round += 1) {
      const client = clients[Math.floor(random() * clients.length)];
      if (client === undefined) throw new Error('no client');
      if (!open.has(client)) await client.query('BEGIN');
      open.add(client);
      written.push(...(await enqueue(db, client, { topic })));
      if (random() < 0.4) {
        await client.query('COMMIT');
        open.delete(client);
      }
      if (random() < 0.3) {
        seen.push(...(await tail.events()));
        await lookNaively();
      }
    }
    for (const client of open) await client.query('COMMIT');
    seen.push(...(await tail.events()));
    await lookNaively();
    expect(seen.toSorted()).toEqual(written.map((id) => `enqueued ${id}`).toSorted());
    expect(naive.length).toBeLessThan(written.length);
  });

  it('shows once what commits between the snapshot and the reading', async () => {
    const queue = await makeQueue(db);
    const [old = ''] = await queue.enqueue(1);
    const claim = await queue.claim();
    const client = await db.connect();
    let snapshots: number | null = null;
    const database = watched(db, {
      after: async (_rows, what) => {
        if (what !== 'take a snapshot' || snapshots === null) return;
        snapshots += 1;
        // the second query is for the messages
        if (snapshots === 2) await client.query('COMMIT');
      },
    });
    const tail = await Follower.start(db, { topic: queue.topic }, database);
    await client.query('BEGIN');
    const [late = ''] = await enqueue(db, client, { topic: queue.topic });
    await settleDelivered(db, claim, client);
    const [early = ''] = await enqueue(db, db.pool, { topic: queue.topic });
    snapshots = 0;
    expect(await tail.events()).toEqual([`enqueued ${early}`]);
    expect((await tail.events()).toSorted()).toEqual([`delivered ${old}`, `enqueued ${late}`]);
    expect(await tail.events()).toEqual([]);
  });

  it('shows no attempt before its message, also for events in the middle of a query', async () => {
    const { queue, database, next } = await deliveredInALook();
    const follower = await Follower.start(db, { topic: queue.topic }, database);
    next.isDue = true;
    const found = (await follower.events()).map((event) => event.split(' ')[0]);
    expect(found).toEqual(['enqueued', 'delivered']);
    expect(await follower.events()).toEqual([]);
  });

  it('skips a message together with its attempt, for events while it starts', async () => {
    const { queue, database, next } = await deliveredInALook();
    next.isDue = true;
    const follower = await Follower.start(db, { topic: queue.topic }, database);
    expect(next.isDue).toBe(false);
    expect(await follower.events()).toEqual([]);
  });

  it('shows attempts whose transaction stays open for many queries, once', async () => {
    const queue = await makeQueue(db);
    const past = new Past(queue, 120_000);
    const late = await db.connect();
    await late.query('BEGIN');
    // it has ended one when the tail starts, and ends another while it reads
    const first = await past.end(late);
    past.pass(30_000);
    const tail = await Follower.start(db, { destination: queue.name }, past.database);
    const second = await past.end(late);
    for (let look = 0; look < 6; look += 1) {
      past.pass(10_000);
      expect(await tail.events()).toEqual([]);
    }
    const other = await past.end(db.pool);
    expect(await tail.events()).toEqual([`delivered ${other}`]);
    past.pass(10_000);
    await late.query('COMMIT');
    expect((await tail.events()).toSorted()).toEqual(
      [`delivered ${first}`, `delivered ${second}`].toSorted(),
    );
    expect(await tail.events()).toEqual([]);
    past.pass(10_000);
    expect(await tail.events()).toEqual([]);
  });

  it('shows attempts of a transaction that was prepared meanwhile, and has another name', async () => {
    const queue = await makeQueue(db);
    const past = new Past(queue, 60_000);
    const tail = await Follower.start(db, { destination: queue.name }, past.database);
    const client = await db.connect();
    await client.query('BEGIN');
    const id = await past.end(client);
    for (let look = 0; look < 2; look += 1) {
      past.pass(10_000);
      expect(await tail.events()).toEqual([]);
    }
    past.isPrepared = true;
    for (let look = 0; look < 3; look += 1) {
      past.pass(10_000);
      expect(await tail.events()).toEqual([]);
    }
    await client.query('COMMIT');
    expect(await tail.events()).toEqual([`delivered ${id}`]);
  });

  it('neither misses nor repeats attempts that commit late, where a reader by the last time does', async () => {
    const queue = await makeQueue(db);
    const random = randomFrom(11);
    const past = new Past(queue, 600_000);
    const tail = await Follower.start(db, { destination: queue.name }, past.database);
    const naive: string[] = [];
    let lastTime = new Date(0);
    const clients = await Promise.all(Array.from({ length: 4 }, () => db.connect()));
    const open = new Map<(typeof clients)[number], string[]>();
    const committed: string[] = [];
    const seen: string[] = [];
    const look = async () => {
      seen.push(...(await tail.events()));
      const { rows } = await db.query<{ message_id: string; ended_at: Date }>(
        `SELECT message_id, ended_at FROM ${db.quoted}.attempts WHERE destination_id = $1 AND ended_at > $2 ORDER BY ended_at`,
        [queue.id, lastTime],
      );
      naive.push(...rows.map(({ message_id }) => message_id));
      lastTime = rows.at(-1)?.ended_at ?? lastTime;
    };
    for (let round = 0; round < 120; round += 1) {
      const client = clients[Math.floor(random() * clients.length)];
      if (client === undefined) throw new Error('no client');
      if (!open.has(client)) await client.query('BEGIN');
      const pending = [...(open.get(client) ?? []), await past.end(client)];
      open.set(client, pending);
      if (random() < 0.3) {
        const isKept = random() < 0.8;
        await client.query(isKept ? 'COMMIT' : 'ROLLBACK');
        if (isKept) committed.push(...pending);
        open.delete(client);
      }
      past.pass(random() < 0.5 ? 4000 : 100);
      if (random() < 0.4) await look();
    }
    for (const [client, pending] of open) {
      await client.query('COMMIT');
      committed.push(...pending);
    }
    await look();
    await look();
    expect(seen.toSorted()).toEqual(committed.map((id) => `delivered ${id}`).toSorted());
    expect(new Set(naive).size).toBeLessThan(committed.length);
  });
});

describe('a window that is too large', () => {
  it('is skipped, with what open transactions commit later, and reported once', async () => {
    const queue = await makeQueue(db);
    const past = new Past(queue, 60_000);
    const tail = await Follower.start(db, { destination: queue.name }, past.database);
    const late = await db.connect();
    await late.query('BEGIN');
    await past.end(late);
    expect(await tail.events()).toEqual([]);
    past.pass(10_000);
    await past.end(db.pool, 100_001);
    expect(await tail.look(10)).toMatchObject({ unseen: true });
    past.pass(10_000);
    await tail.look(10);
    past.pass(10_000);
    expect(await tail.look(10)).toEqual({ events: [], more: 0, unseen: false });
    await late.query('COMMIT');
    expect(await tail.events()).toEqual([]);
  });
});
