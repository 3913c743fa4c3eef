// What a tail reads: each event once, also those whose transactions commit late; the filters; and no more of a large
// outbox than it shows.

import { beforeAll, describe, expect, it } from 'vitest';

import { readTail, snapshotBefore, snapshotNow } from '../../src/database/tail.js';
import type { TailFilter } from '../../src/database/tail.js';
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
class Tail {
  readonly #database: Database = openDatabase(db);
  readonly #filter: TailFilter;
  #seen = '';

  private constructor(filter: TailFilter) {
    this.#filter = filter;
  }

  static async start(filter: TailFilter = {}): Promise<Tail> {
    const tail = new Tail(filter);
    tail.#seen = filter.since
      ? await snapshotBefore(tail.#database, filter.since)
      : await snapshotNow(tail.#database);
    return tail;
  }

  async look(limit = 1000) {
    const target = await snapshotNow(this.#database);
    const window = await readTail(
      this.#database,
      { seen: this.#seen, target },
      this.#filter,
      limit,
    );
    this.#seen = target;
    return window;
  }

  /** Each event as: what, of which message. */
  async events(): Promise<string[]> {
    return (await this.look()).events.map(({ event, messageId }) => `${event} ${messageId}`);
  }
}

describe('a tail', () => {
  it('shows what is enqueued and how each attempt ends', async () => {
    const queue = await makeQueue(db);
    const tail = await Tail.start({ topic: queue.topic });
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
    const tail = await Tail.start({ topic });
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

  it('leaves what commits between the snapshot and the look for the next look', async () => {
    const database = openDatabase(db);
    const filter = { topic: 'between' };
    const seen = await snapshotNow(database);
    const client = await db.connect();
    await client.query('BEGIN');
    const [late] = await enqueue(db, client, filter);
    const [early] = await enqueue(db, db.pool, filter);
    const target = await snapshotNow(database);
    await client.query('COMMIT');
    const ids = async (from: string, to: string) =>
      (await readTail(database, { seen: from, target: to }, filter, 100)).events.map(
        ({ messageId }) => messageId,
      );
    expect(await ids(seen, target)).toEqual([early]);
    expect(await ids(target, await snapshotNow(database))).toEqual([late]);
  });

  it('shows attempts whose transaction commits late, once', async () => {
    const queue = await makeQueue(db);
    const tail = await Tail.start({ destination: queue.name });
    const ids = await queue.enqueue(2);
    const first = await queue.claim({ limit: 1 });
    const second = await queue.claim({ limit: 1 });
    expect(await tail.events()).toEqual(ids.map((id) => `enqueued ${id}`));
    const late = await db.connect();
    await late.query('BEGIN');
    await settleDelivered(db, first, late);
    await settleDelivered(db, second);
    expect(await tail.events()).toEqual([`delivered ${ids[1]}`]);
    expect(await tail.events()).toEqual([]);
    await late.query('COMMIT');
    expect(await tail.events()).toEqual([`delivered ${ids[0]}`]);
    expect(await tail.events()).toEqual([]);
  });

  it('begins in the past if it is told to, and goes on from there', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(2);
    await deliverAll(db, queue);
    const { rows } = await db.query<{ now: Date }>(`SELECT clock_timestamp() AS now`);
    const later = await queue.enqueueOne();
    const all = await Tail.start({
      topic: queue.topic,
      since: new Date(only(rows).now.getTime() - 60_000),
    });
    expect((await all.events()).toSorted()).toEqual(
      [
        ...ids.flatMap((id) => [`enqueued ${id}`, `delivered ${id}`]),
        `enqueued ${later}`,
      ].toSorted(),
    );
    const some = await Tail.start({ topic: queue.topic, since: only(rows).now });
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
    const tail = await Tail.start(filter(one));
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
    const tail = await Tail.start({ topic: queue.topic });
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
       INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at, transaction_id)
       SELECT id, $1, 1, 1, 'dispatched', now(), '5' FROM past`,
      [queue.id],
    );
    const seen = await snapshotNow(openDatabase(db));
    const [id = ''] = await queue.enqueue(1);
    await deliverAll(db, queue);
    const database = openDatabase(db);
    const target = await snapshotNow(database);
    const statements: [string, unknown[]][] = [];
    const recording = new Proxy(database, {
      get(object, name) {
        if (name !== 'query') return Reflect.get(object, name) as unknown;
        return async (what: string, sql: string, values: unknown[]) => {
          statements.push([sql, values]);
          return object.query(what, sql, values);
        };
      },
    });
    const { events } = await readTail(recording, { seen, target }, {}, 100);
    expect(events.map(({ event, messageId }) => `${event} ${messageId}`)).toEqual([
      `enqueued ${id}`,
      `delivered ${id}`,
    ]);
    expect(statements).toHaveLength(2);
    for (const [sql, values] of statements) {
      const { rows } = await db.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
        `EXPLAIN (ANALYZE, FORMAT JSON) ${sql}`,
        values,
      );
      expect(rowsRead(only(rows)['QUERY PLAN'][0].Plan)).toBeLessThan(100);
    }
  });
});

type Plan = {
  'Node Type': string;
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  Plans?: Plan[];
};

/** Of messages and attempts, all that was looked at. */
function rowsRead(plan: Plan): number {
  const here = /^(messages|attempts)/.test(plan['Relation Name'] ?? '')
    ? (plan['Actual Rows'] + (plan['Rows Removed by Filter'] ?? 0)) * plan['Actual Loops']
    : 0;
  return here + (plan.Plans ?? []).reduce((sum, child) => sum + rowsRead(child), 0);
}
