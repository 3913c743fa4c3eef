// What a tail reads: each event once, also those whose transactions commit late; the filters; and no more of a large
// outbox than it shows.

import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { Tail } from '../../src/database/tail.js';
import type { TailFilter, TailWindow } from '../../src/database/tail.js';
import type { Database } from '../../src/database/connection.js';
import { addRoute } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { deliverAll } from '../support/replays.js';
import { expire, reap, releaseLease, settle, settleDelivered } from '../support/settling.js';
import { enqueue, randomFrom } from '../support/streams.js';

const db = testDatabase();

/** Looks again and again, as the command does. */
class Follower {
  readonly #tail: Tail;

  private constructor(tail: Tail) {
    this.#tail = tail;
  }

  static async start(
    filter: TailFilter = {},
    database = openDatabase(db, 'test_auditor'),
  ): Promise<Follower> {
    return new Follower(await Tail.start(database, filter));
  }

  look(limit = 1000): Promise<TailWindow> {
    return this.#tail.look(limit);
  }

  /** Each event as: what, of which message. */
  async events(): Promise<string[]> {
    return (await this.look()).events.map(({ event, messageId }) => `${event} ${messageId}`);
  }
}

/** A message that comes and is delivered right after the next snapshot is taken, once that is due. */
async function deliveredInALook() {
  const queue = await makeQueue(db);
  const next = { isDue: false };
  const database = watched({
    async after(_rows, what) {
      if (what !== 'take a snapshot' || !next.isDue) return;
      next.isDue = false;
      await queue.enqueueOne();
      await deliverAll(db, queue);
    },
  });
  return { queue, database, next };
}

/** The database, with something done before or after each of its queries. */
function watched(around: {
  before?: (sql: string, values: unknown[]) => void;
  after?: (rows: pg.QueryResultRow[], what: string) => Promise<void> | void;
}): Database {
  return new Proxy(openDatabase(db, 'test_auditor'), {
    get(object, name) {
      if (name !== 'query') return Reflect.get(object, name) as unknown;
      return async (what: string, sql: string, values: unknown[]) => {
        around.before?.(sql, values);
        const rows = await object.query(what, sql, values);
        await around.after?.(rows, what);
        return rows;
      };
    },
  });
}

/** Some time ago, which passes when it is told to: for the tail, and for attempts that end. */
class Past {
  readonly #queue: Queue;
  #agoMs: number;

  constructor(queue: Queue, agoMs: number) {
    this.#queue = queue;
    this.#agoMs = agoMs;
  }

  /** Open transactions look as if they had been prepared: servers rarely let anybody do it. */
  isPrepared = false;

  readonly database: Database = watched({
    after: (rows) => {
      for (const row of rows as Partial<Record<string, unknown>>[]) {
        if (typeof row['atMs'] === 'number') row['atMs'] -= this.#agoMs;
        if (!this.isPrepared || !Array.isArray(row['writers'])) continue;
        row['prepared'] = row['writers'].map((name) => `-1/${name}`);
        row['writers'] = [];
      }
    },
  });

  pass(ms: number): void {
    this.#agoMs -= ms;
    if (this.#agoMs < 0) throw new Error('this would be the future');
  }

  /** Ends attempts, as settling does; answers the first one's message. */
  async end(client: Pick<pg.ClientBase, 'query'> | pg.Pool, count = 1): Promise<string> {
    const { rows } = await client.query<{ message_id: string }>(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       SELECT ${db.quoted}.new_id(), $1, 1, 1, 'dispatched', clock_timestamp() - $2 * interval '1 ms'
         FROM generate_series(1, $3) RETURNING message_id`,
      [this.#queue.id, this.#agoMs, count],
    );
    return rows[0]?.message_id ?? '';
  }
}

describe('a tail', () => {
  it('shows what is enqueued and how each attempt ends', async () => {
    const queue = await makeQueue(db);
    const tail = await Follower.start({ topic: queue.topic });
    const [a = '', b = '', c = '', d = '', e = ''] = await queue.enqueue(5, { tenantId: 'acme' });
    expect(await tail.events()).toEqual([a, b, c, d, e].map((id) => `enqueued ${id}`));
    const claim = await queue.claim({ limit: 3 });
    await settle(db, claim, [
      { id: a, outcome: 'delivered', latencyMs: 12, reference: 'r1' },
      {
        id: b,
        outcome: 'retry',
        errorCode: 'busy',
        remoteCode: '503',
        errorMessage: 'later',
        retryAfterMs: 60_000,
      },
      { id: c, outcome: 'reject', errorCode: 'bad' },
    ]);
    const { events, more, unseen } = await tail.look();
    expect({ more, unseen }).toEqual({ more: 0, unseen: false });
    expect(events.toSorted((x, y) => x.messageId.localeCompare(y.messageId))).toMatchObject([
      {
        event: 'delivered',
        messageId: a,
        destination: queue.name,
        topic: queue.topic,
        tenantId: 'acme',
        tries: 1,
        latencyMs: 12,
        reference: 'r1',
      },
      { event: 'retrying', messageId: b, errorCode: 'busy', remoteCode: '503', error: 'later' },
      { event: 'dead', messageId: c, errorCode: 'bad', claimNo: 1 },
    ]);
    expect(await tail.events()).toEqual([]);
    await releaseLease(db, await queue.claim({ limit: 1 }));
    const abandoned = await queue.claim({ limit: 1 });
    await expire(db, abandoned);
    await reap(db);
    await db.query(`SELECT ${db.quoted}.cancel($1)`, [e]);
    expect(await tail.events()).toEqual([`released ${d}`, `abandoned ${d}`, `discarded ${e}`]);
  });

  it('neither misses nor repeats what commits late, where a reader that remembers the last id does', async () => {
    const topic = 'late.commit';
    const random = randomFrom(7);
    const tail = await Follower.start({ topic });
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
    const database = watched({
      after: async (_rows, what) => {
        if (what !== 'take a snapshot' || snapshots === null) return;
        snapshots += 1;
        // the second is for the messages
        if (snapshots === 2) await client.query('COMMIT');
      },
    });
    const tail = await Follower.start({ topic: queue.topic }, database);
    await client.query('BEGIN');
    const [late = ''] = await enqueue(db, client, { topic: queue.topic });
    await settleDelivered(db, claim, client);
    const [early = ''] = await enqueue(db, db.pool, { topic: queue.topic });
    snapshots = 0;
    expect(await tail.events()).toEqual([`enqueued ${early}`]);
    expect((await tail.events()).toSorted()).toEqual([`delivered ${old}`, `enqueued ${late}`]);
    expect(await tail.events()).toEqual([]);
  });

  it('shows no attempt before its message, also of what happens in the middle of a look', async () => {
    const { queue, database, next } = await deliveredInALook();
    const follower = await Follower.start({ topic: queue.topic }, database);
    next.isDue = true;
    const found = (await follower.events()).map((event) => event.split(' ')[0]);
    expect(found).toEqual(['enqueued', 'delivered']);
    expect(await follower.events()).toEqual([]);
  });

  it('passes over a message together with its attempt, of what happens while it begins', async () => {
    const { queue, database, next } = await deliveredInALook();
    next.isDue = true;
    const follower = await Follower.start({ topic: queue.topic }, database);
    expect(next.isDue).toBe(false);
    expect(await follower.events()).toEqual([]);
  });

  it('shows attempts whose transaction stays open for many looks, once', async () => {
    const queue = await makeQueue(db);
    const past = new Past(queue, 120_000);
    const late = await db.connect();
    await late.query('BEGIN');
    // it has ended one when the tail begins, and ends another while it looks
    const first = await past.end(late);
    past.pass(30_000);
    const tail = await Follower.start({ destination: queue.name }, past.database);
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
    const tail = await Follower.start({ destination: queue.name }, past.database);
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

  it('neither misses nor repeats attempts that commit late, where a reader that remembers the last time does', async () => {
    const queue = await makeQueue(db);
    const random = randomFrom(11);
    const past = new Past(queue, 600_000);
    const tail = await Follower.start({ destination: queue.name }, past.database);
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

  it('begins in the past if it is told to, and goes on from there', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(2);
    await deliverAll(db, queue);
    const { rows } = await db.query<{ now: Date }>(`SELECT clock_timestamp() AS now`);
    const later = await queue.enqueueOne();
    const all = await Follower.start({
      topic: queue.topic,
      since: new Date(only(rows).now.getTime() - 60_000),
    });
    expect((await all.events()).toSorted()).toEqual(
      [
        ...ids.flatMap((id) => [`enqueued ${id}`, `delivered ${id}`]),
        `enqueued ${later}`,
      ].toSorted(),
    );
    const some = await Follower.start({ topic: queue.topic, since: only(rows).now });
    expect(await some.events()).toEqual([`enqueued ${later}`]);
    await deliverAll(db, queue);
    expect(await some.events()).toEqual([`delivered ${later}`]);
    expect(await all.events()).toEqual([`delivered ${later}`]);
  });
});

describe('the filters of a tail', () => {
  let one: Queue;
  let two: Queue;
  beforeAll(async () => {
    [one, two] = await Promise.all([makeQueue(db), makeQueue(db)]);
    await addRoute(db, two.id, one.topic, { tenantId: 'acme' });
  });

  it.each<[string, (queue: Queue) => TailFilter, string[]]>([
    [
      'topic',
      (queue) => ({ topic: queue.topic }),
      ['enqueued 0', 'enqueued 1', 'one 0', 'one 1', 'two 0'],
    ],
    ['a pattern that fits nothing', () => ({ topic: 'other.*' }), []],
    ['destination', () => ({ destination: two.name }), ['enqueued 0', 'two 0']],
    ['tenant', () => ({ tenantId: 'acme' }), ['enqueued 0', 'one 0', 'two 0']],
    ['namespace', () => ({ namespace: 'shop' }), ['enqueued 1', 'one 1']],
    ['key', () => ({ key: 'tail' }), ['enqueued 1', 'one 1']],
    [
      'aggregate',
      () => ({ aggregateType: 'order', aggregateId: '7' }),
      ['enqueued 0', 'one 0', 'two 0'],
    ],
    ['event', (queue) => ({ topic: queue.topic, event: 'delivered' }), ['one 0', 'one 1']],
    ['error code', () => ({ errorCode: 'tail_failed' }), ['two 0']],
    ['event and error code', () => ({ event: 'dead', errorCode: 'tail_failed' }), ['two 0']],
  ])('by %s', async (_what, filter, wanted) => {
    const tail = await Follower.start(filter(one));
    const ids = await one.enqueueAll([
      { tenantId: 'acme', aggregateType: 'order', aggregateId: '7' },
      { namespace: 'shop', key: 'tail' },
    ]);
    await deliverAll(db, one);
    await settle(db, await two.claim(), [
      { id: ids[0] ?? '', outcome: 'reject', errorCode: 'tail_failed' },
    ]);
    const { events } = await tail.look();
    const names = new Map([
      [null, 'enqueued'],
      [one.name, 'one'],
      [two.name, 'two'],
    ]);
    expect(
      events
        .map(({ destination, messageId }) => `${names.get(destination)} ${ids.indexOf(messageId)}`)
        .toSorted(),
    ).toEqual(wanted);
  });
});

describe('a window that is too large', () => {
  it('is cut, and says how many more there were', async () => {
    const queue = await makeQueue(db);
    const tail = await Follower.start({ topic: queue.topic });
    const ids = await queue.enqueue(30);
    await deliverAll(db, queue);
    const { events, more } = await tail.look(10);
    expect(events).toHaveLength(10);
    expect(more).toBe(50);
    // the newest are shown
    expect(events.every(({ event }) => event === 'delivered')).toBe(true);
    expect(ids).toHaveLength(30);
    expect(await tail.look(10)).toMatchObject({ events: [], more: 0 });
  });

  it('N6 a look reads what is new, and not what was there before', async () => {
    const queue = await makeQueue(db);
    await db.query(
      `WITH past AS (
         INSERT INTO ${db.quoted}.messages (id, created_at, transaction_id, namespace, topic, payload)
         SELECT ${db.quoted}.new_id(), now(), '5', 'default', 'past', '{}' FROM generate_series(1, 20000) RETURNING id)
       INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       SELECT id, $1, 1, 1, 'dispatched', now() - interval '1 hour' FROM past`,
      [queue.id],
    );
    // as autovacuum does
    await db.query(`ANALYZE ${db.quoted}.attempts`);
    await db.query(
      `SELECT brin_summarize_new_values(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         JOIN pg_am m ON m.oid = c.relam WHERE m.amname = 'brin' AND c.relkind = 'i' AND c.relnamespace = $1::text::regnamespace`,
      [db.quoted],
    );
    const statements: [string, unknown[]][] = [];
    const tail = await Follower.start(
      {},
      watched({ before: (sql, values) => statements.push([sql, values]) }),
    );
    statements.length = 0;
    const [id = ''] = await queue.enqueue(1);
    await deliverAll(db, queue);
    const { events } = await tail.look(100);
    expect(events.map(({ event, messageId }) => `${event} ${messageId}`)).toEqual([
      `enqueued ${id}`,
      `delivered ${id}`,
    ]);
    expect(statements).toHaveLength(4);
    for (const [sql, values] of statements) {
      const { rows } = await db.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
        `EXPLAIN (ANALYZE, FORMAT JSON) ${sql}`,
        values,
      );
      expect(rowsRead(only(rows)['QUERY PLAN'][0].Plan)).toBeLessThan(6000);
    }
  });

  it('is given up with what open transactions have yet to commit, and says so once', async () => {
    const queue = await makeQueue(db);
    const past = new Past(queue, 60_000);
    const tail = await Follower.start({ destination: queue.name }, past.database);
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

type Plan = {
  'Node Type': string;
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  Plans?: Plan[];
};

/** Of messages and attempts, all that was looked at. */
function rowsRead(plan: Plan): number {
  const here = /^(messages|attempts)/.test(plan['Relation Name'] ?? '')
    ? (plan['Actual Rows'] +
        (plan['Rows Removed by Filter'] ?? 0) +
        (plan['Rows Removed by Index Recheck'] ?? 0)) *
      plan['Actual Loops']
    : 0;
  return here + (plan.Plans ?? []).reduce((sum, child) => sum + rowsRead(child), 0);
}
