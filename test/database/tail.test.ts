// What a tail reads: new and past events, by filters, and no more of a large outbox than it shows. tail-late.test.ts
// proves that it shows each event once, including late commits.

import { beforeAll, describe, expect, it } from 'vitest';

import type { TailFilter } from '../../src/listing/tail.js';
import { addRoute } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deliverAll } from '../support/replays.js';
import { expire, reap, releaseLease, settle } from '../support/settling.js';
import { Follower, watched } from '../support/tail.js';

const db = testDatabase();

describe('a tail', () => {
  it('shows enqueued messages and the end of each attempt', async () => {
    const queue = await makeQueue(db);
    const tail = await Follower.start(db, { topic: queue.topic });
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
    const expired = await queue.claim({ limit: 1 });
    await expire(db, expired);
    await reap(db);
    await db.query(`SELECT ${db.quoted}.cancel($1)`, [e]);
    expect(await tail.events()).toEqual([`released ${d}`, `zombie_requeue ${d}`, `discarded ${e}`]);
  });

  it('starts in the past on request, and continues from there', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(2);
    await deliverAll(db, queue);
    const { rows } = await db.query<{ now: Date }>(`SELECT clock_timestamp() AS now`);
    const later = await queue.enqueueOne();
    const all = await Follower.start(db, {
      topic: queue.topic,
      since: new Date(only(rows).now.getTime() - 60_000),
    });
    expect((await all.events()).toSorted()).toEqual(
      [
        ...ids.flatMap((id) => [`enqueued ${id}`, `delivered ${id}`]),
        `enqueued ${later}`,
      ].toSorted(),
    );
    const some = await Follower.start(db, { topic: queue.topic, since: only(rows).now });
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
    ['a pattern without a match', () => ({ topic: 'other.*' }), []],
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
  ])('select by %s', async (_what, filter, wanted) => {
    const tail = await Follower.start(db, filter(one));
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
  it('is cut, with the number of events left out', async () => {
    const queue = await makeQueue(db);
    const tail = await Follower.start(db, { topic: queue.topic });
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

  it('N6 a query reads only new rows', async () => {
    const queue = await makeQueue(db);
    await db.query(
      `WITH past AS (
         INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
         SELECT 2, ${db.quoted}.new_id(), now(), '5', 'default', 'past', '{}' FROM generate_series(1, 20000) RETURNING id)
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
      db,
      {},
      watched(db, { before: (sql, values) => statements.push([sql, values]) }),
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

/** All rows of messages and attempts that were read. */
function rowsRead(plan: Plan): number {
  const here = /^(messages|attempts)/.test(plan['Relation Name'] ?? '')
    ? (plan['Actual Rows'] +
        (plan['Rows Removed by Filter'] ?? 0) +
        (plan['Rows Removed by Index Recheck'] ?? 0)) *
      plan['Actual Loops']
    : 0;
  return here + (plan.Plans ?? []).reduce((sum, child) => sum + rowsRead(child), 0);
}
