// Claims and settles are index scans. Their cost does not grow with the delivered history or the number of partitions,
// nor with statistics taken while the queue was empty. Measured by the server's counters of rows read, which include
// every plan.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { beforeAll, describe, expect, inject, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { startsFor } from '../../src/listing/message-starts.js';
import type { MessageFilter } from '../../src/listing/message-ranges.js';
import { messagesQuery } from '../../src/listing/tail-queries.js';
import { expire, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase({ allPartitions: true });

// A million rows on the newest PostgreSQL with `npm run test:full`; otherwise a tenth of that.
const full = inject('isFull') && inject('postgresMajor') === 18;
const history = full ? 1_000_000 : 100_000;
const waiting = full ? 100_000 : 20_000;
const days = 30;
const batch = 500;
/** The first and the last day of the history can have few messages, and may then be read in sequence. */
const fewRows = history / days / 5;

let client: pg.Client;
let queue: Queue;

/** Messages delivered over some of the past days, with ids spread evenly as a steady stream makes them. */
async function deliveredInThePast(count: number, daysAgo: number): Promise<void> {
  await client.query(
    `WITH past AS MATERIALIZED (
       SELECT encode(substring(int8send((extract(epoch FROM now() - interval '1 day' * ($2::float8 + $3::float8 * n / $1::float8)) * 1000)::bigint) FROM 3)
                || '\\x7000'::bytea || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid AS id
         FROM generate_series(1, $1::float8::int) n),
     messages AS (
       INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
       SELECT 2, id, now(), '1', 'default', 'past', '{}' FROM past)
     INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at)
     SELECT id, $4, 1, 1, 'dispatched', gen_random_uuid(), now(), now() FROM past`,
    [count, daysAgo, days / 10, queue.id],
  );
}

beforeAll(async () => {
  client = await db.connect();
  // the rows that parallel workers read are not in this session's counters
  await client.query('SET max_parallel_workers_per_gather = 0');
  queue = await makeQueue(db, { retryBaseMs: 0, retryMaxMs: 0 });
  await client.query(`SELECT ${db.quoted}.make_partitions(60, current_date - ${days + 1})`);
  const chunks = 10;
  for (let chunk = 0; chunk < chunks; chunk += 1) {
    await deliveredInThePast(history / chunks, (days / chunks) * chunk);
  }
  // the worst moment for statistics: the history is long and the queue is empty
  await client.query('ANALYZE');
  await queue.enqueue(waiting);
}, 120_000);

type Reads = { seqRows: number; indexScans: number; indexRows: number };

/** The rows that the work reads, per table; partitions count for their parent. */
async function reads(work: () => Promise<unknown>): Promise<Map<string, Reads>> {
  const counters = async () => {
    const { rows } = await client.query<{ table: string } & Reads>(
      `SELECT regexp_replace(relname, '_\\d{8}$', '') AS table, sum(seq_tup_read)::int AS "seqRows",
              sum(idx_scan)::int AS "indexScans", sum(idx_tup_fetch)::int AS "indexRows"
         FROM pg_stat_xact_user_tables WHERE schemaname = $1 GROUP BY 1`,
      [db.schema],
    );
    return new Map(rows.map((row) => [row.table, row]));
  };
  await client.query('BEGIN');
  const before = await counters();
  await work();
  const after = await counters();
  await client.query('COMMIT');
  const changed = [...after].map(([table, now]): [string, Reads] => {
    const then = before.get(table);
    return [
      table,
      {
        seqRows: now.seqRows - (then?.seqRows ?? 0),
        indexScans: (now.indexScans ?? 0) - (then?.indexScans ?? 0),
        indexRows: (now.indexRows ?? 0) - (then?.indexRows ?? 0),
      },
    ];
  });
  return new Map(changed);
}

function expectCheap(found: Map<string, Reads>, rowsPerTable = 4 * batch): void {
  for (const table of ['deliveries', 'messages', 'attempts', 'dedupe_keys', 'dead_letters']) {
    const read = found.get(table) ?? { seqRows: 0, indexScans: 0, indexRows: 0 };
    expect(read.seqRows, `rows of ${table} read in sequence`).toBeLessThan(fewRows);
    expect(read.indexRows, `rows of ${table} read by index`).toBeLessThanOrEqual(rowsPerTable);
    // one probe for each message, whatever the number of partitions
    expect(read.indexScans, `index scans of ${table}`).toBeLessThanOrEqual(rowsPerTable);
  }
}

/** Ids of 2023 and of 2039. */
const firstId = '018bcfe5-6800-7000-8000-000000000000';
const lastId = '01ffffff-0000-7000-8000-000000000000';

describe('with a long history, many partitions and stale statistics', () => {
  it('N6 W8 a look of the tail reads what is new, although one transaction wrote most of the log', async () => {
    const { rows } = await client.query<{ now: string }>(
      'SELECT pg_current_snapshot()::text AS now',
    );
    const { now } = only(rows);
    const found = await reads(() =>
      client.query(messagesQuery(db.quoted), [now, now, 100, ...Array<null>(8).fill(null)]),
    );
    expectCheap(found);
  });

  it('C4 N6 the counters see a sequential scan', async () => {
    const found = await reads(() =>
      client.query(`SELECT count(payload) FROM ${db.quoted}.messages`),
    );
    expect(found.get('messages')?.seqRows).toBeGreaterThanOrEqual(history);
    expect(() => expectCheap(found)).toThrow(/read in sequence/);
    const { rows } = await client.query<{ partitions: number }>(
      `SELECT count(*)::int AS partitions FROM pg_inherits WHERE inhparent = '${db.quoted}.messages'::regclass`,
    );
    expect(only(rows).partitions).toBeGreaterThanOrEqual(60 + days);
  });

  it('W5 P14 health, alerts and the sample read recent rows, and no history', async () => {
    const asked = [
      `SELECT * FROM ${db.quoted}.health WHERE metric IN ('delivered', 'average_delivery_ms')`,
      `SELECT * FROM ${db.quoted}.delivery_times('5 minutes')`,
    ];
    await client.query(
      `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
       SELECT now() - n * interval '1 minute', $1, 1, 0, 0 FROM generate_series(10, 20000) n`,
      [queue.id],
    );
    await client.query(`ANALYZE ${db.quoted}.statistics`);
    for (const sql of asked) expectCheap(await reads(() => client.query(sql)));
    const found = await reads(() => client.query(`SELECT * FROM ${db.quoted}.alerts()`));
    expect(found.get('statistics')?.seqRows).toBe(0);
    expect(found.get('attempts')?.seqRows).toBeLessThan(fewRows);
    expect(found.get('attempts')?.indexRows).toBeLessThanOrEqual(4 * batch);
  });

  it('W5 a list looks up each of its messages, and reads no history', async () => {
    const { rows } = await client.query<{ ids: string[] }>(
      `SELECT array_agg(id) AS ids FROM (SELECT id FROM ${db.quoted}.messages WHERE topic = 'past' ORDER BY id DESC LIMIT 100) x`,
    );
    const described = () =>
      client.query(`SELECT * FROM ${db.quoted}.describe_messages($1)`, [only(rows).ids]);
    expectCheap(await reads(described), 400);
  });

  it('W5 a search by payload looks up each message that it checks, and reads no history', async () => {
    const { rows } = await client.query<{ ids: string[] }>(
      `SELECT array_agg(id) AS ids FROM (SELECT id FROM ${db.quoted}.messages WHERE topic = 'past' ORDER BY id DESC LIMIT 1000) x`,
    );
    const matched = () =>
      client.query(`SELECT * FROM ${db.quoted}.match_payloads($1, '$ ? (@.a == 1)', 4194304)`, [
        only(rows).ids,
      ]);
    expectCheap(await reads(matched), 1000);
  });

  it('W5 the choice of where a search starts reads a bounded number of entries', async () => {
    const sized = () =>
      client.query(`SELECT * FROM ${db.quoted}.search_sizes($1, $2)`, [
        ['pending', 'retrying', 'topic', 'tenant', 'aggregate', 'key', 'code', 'dead of topic'],
        { topic: 'past', tenantId: 'none', aggregateId: 'none', key: 'none', codes: ['none'] },
      ]);
    // one count stops at 1,000
    expectCheap(await reads(sized), 2000);
    const timed = () =>
      client.query(`SELECT * FROM ${db.quoted}.search_sizes($1, $2)`, [
        ['topic', 'tenant'],
        { topic: 'past', tenantId: 'none', from: new Date(0), to: new Date() },
      ]);
    expectCheap(await reads(timed), 2000);
  });

  it('W5 walks of a search read one entry of each value and day', async () => {
    const walks: [string, unknown[]][] = [
      ['topics_with($1, NULL, NULL, NULL)', ['pas']],
      ['dead_topics_with($1, NULL)', ['pas']],
      ['search_suggestions($1, 8)', ['pas']],
      [`find_dedupe_key($1, NULL, NULL, '{"","",""}', 100)`, ['none']],
      ['failure_codes($1, $2)', [firstId, lastId]],
    ];
    for (const [walk, values] of walks) {
      const found = await reads(() => client.query(`SELECT * FROM ${db.quoted}.${walk}`, values));
      expectCheap(found, 2 * (60 + days) + 200);
    }
  });

  it('C4 a claim reads only what it claims', async () => {
    expectCheap(await reads(() => queue.claim({ on: client, limit: batch })));
  });

  it('C4 N6 a claim for tenants reads only what it claims', async () => {
    await queue.enqueueAll(
      ['a', 'b', 'c'].flatMap((tenantId) =>
        Array.from({ length: batch }, () => ({ tenantId, payload: 1 })),
      ),
    );
    const tenantIds = ['a', 'c'];
    let claimed = 0;
    const found = await reads(async () => {
      claimed = (await queue.claim({ on: client, limit: batch, tenantIds })).ids.length;
    });
    expect(claimed).toBe(batch);
    expectCheap(found);
  });

  it('C4 a settle of a batch, delivered or with mixed outcomes, reads only what it settles', async () => {
    const first = await queue.claim({ limit: batch });
    expectCheap(await reads(() => settleDelivered(db, first, client)));
    const second = await queue.claim({ limit: batch });
    const outcomes = ['delivered', 'retry', 'reject', 'release'] as const;
    const endings = second.rows.map((row, n) => ({
      id: row.message_id,
      claimNo: row.claim_no,
      outcome: outcomes[n % 4] ?? 'delivered',
    }));
    expectCheap(await reads(() => settle(db, second, endings, client)));
  });

  it('C4 the check for lost claims is an index scan', async () => {
    const claim = await queue.claim({ limit: batch });
    await settleDelivered(db, claim);
    expectCheap(await reads(() => settleDelivered(db, claim, client)));
  });

  it('C4 C6 the simple claim and mark_delivered read only what they take', async () => {
    const token = randomUUID();
    let ids: string[] = [];
    const claiming = await reads(async () => {
      const { rows } = await client.query<{ message_id: string }>(
        `SELECT * FROM ${db.quoted}.claim($1, $2, ${batch})`,
        [queue.name, token],
      );
      ids = rows.map((row) => row.message_id);
    });
    expect(ids).toHaveLength(batch);
    expectCheap(claiming);
    expectCheap(
      await reads(() => client.query(`SELECT ${db.quoted}.mark_delivered($1, $2)`, [token, ids])),
    );
  });

  it('C4 the reaper reads only what it requeues', async () => {
    const claim = await queue.claim({ limit: batch });
    await expire(db, claim);
    expectCheap(await reads(() => client.query(`SELECT ${db.quoted}.reap()`)));
  });

  it('C4 N6 enqueue, also with dedupe keys, reads no history', async () => {
    await client.query(
      `INSERT INTO ${db.quoted}.dedupe_keys (message_id, namespace, topic, dedupe_key) SELECT ${db.quoted}.new_id(), 'default', 'past', n::text
         FROM generate_series(1, 20000) n`,
    );
    const messages = Array.from({ length: 50 }, (_, n) => ({
      topic: queue.topic,
      dedupeKey: `plan-${n}`,
    }));
    const found = await reads(() =>
      client.query(`SELECT ${db.quoted}.enqueue_many($1)`, [JSON.stringify(messages)]),
    );
    expectCheap(found);
  });

  it('C4 N6 forgetting old dedupe keys reads only what it forgets, whatever is pending', async () => {
    await client.query(
      `INSERT INTO ${db.quoted}.dedupe_keys (message_id, namespace, topic, dedupe_key) SELECT ${db.quoted}.id_at(now() - interval '40 days' + n * interval '1 ms'), 'default', 'old', n::text
         FROM generate_series(1, 20000) n`,
    );
    let pruned = 0;
    const found = await reads(async () => {
      const { rows } = await client.query<{ pruned: number }>(
        `SELECT pruned FROM ${db.quoted}.prune_dedupe_keys('30 days', ${batch})`,
      );
      pruned = only(rows).pruned;
    });
    expect(pruned).toBe(batch);
    expectCheap(found);
  });

  /** Reads the first entries of a list over some of the past days, as the page does. */
  async function list(filter: MessageFilter, fromDaysAgo: number, limit = 100): Promise<string[]> {
    const range = startsFor(filter)[0]?.ranges[0];
    if (range === undefined) throw new Error('the filter has no range');
    const { rows } = await client.query<{ to: string; from: string }>(
      `SELECT ${db.quoted}.id_at(now() - interval '1 day')::text AS to,
              ${db.quoted}.id_at(now() - interval '1 day' * $1::float8)::text AS from`,
      [fromDaysAgo],
    );
    const { to, from } = only(rows);
    const found = await client.query<{ message_id: string }>(range.sql(db.quoted), [
      to,
      limit,
      from,
      ...range.values,
    ]);
    return found.rows.map(({ message_id }) => message_id);
  }

  it('N6 W1 W5 a list by topic, tenant, aggregate or key reads its newest slots in order, and no others', async () => {
    // every 20 seconds in the past days; each value has 100,000 messages or fewer
    await client.query(
      `INSERT INTO ${db.quoted}.keys (next_sequence, namespace, tenant_id, key) VALUES (1, 'default', '', 'listed')`,
    );
    await client.query(
      `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, tenant_id, key, key_id, sequence, aggregate_type, aggregate_id, payload)
       SELECT 2, overlay(${db.quoted}.id_at(now() - interval '1 day' - n * interval '20 seconds')::text PLACING '7' || right(gen_random_uuid()::text, 21) FROM 15)::uuid,
              now(), '1', 'default', 'listed', 'listed', 'listed', k.id, n, 'order', 'listed', '{}'
         FROM generate_series(1, 10000) n, ${db.quoted}.keys k WHERE k.key = 'listed'`,
    );
    await client.query(`ANALYZE ${db.quoted}.messages`);
    const filters: MessageFilter[] = [
      { topic: 'listed' },
      { tenantId: 'listed' },
      { aggregateType: 'order', aggregateId: 'listed' },
      { key: 'listed' },
    ];
    const { rows } = await client.query<{ id: string }>(
      `SELECT m.id FROM ${db.quoted}.messages m WHERE m.tenant_id = 'listed' ORDER BY m.id DESC LIMIT 100`,
    );
    for (const filter of filters) {
      let ids: string[] = [];
      const found = await reads(async () => {
        ids = await list(filter, 4);
      });
      expect(ids, JSON.stringify(filter)).toEqual(rows.map(({ id }) => id));
      expect(found.get('messages')?.seqRows, JSON.stringify(filter)).toBeLessThan(fewRows);
      // a slot has 3 messages; all of the days together have 10,000 and 100,000 others
      expect(found.get('messages')?.indexRows, JSON.stringify(filter)).toBeLessThan(300);
    }
    const walked = await reads(() =>
      client.query(`SELECT * FROM ${db.quoted}.tenants_with('lis', $1, 200)`, [firstId]),
    );
    expectCheap(walked, 2 * (60 + days) + 200);
  });

  it('N15 an index of the filters takes a few bytes a message, because slots are stored once', async () => {
    const { rows } = await client.query<{ bytes: number }>(
      `SELECT sum(pg_relation_size(i.indexrelid))::float8 / (SELECT count(*) FROM ${db.quoted}.messages) AS bytes
         FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indexrelid
        WHERE h.inhparent = '${db.quoted}.messages_by_topic'::regclass`,
    );
    // with ids in place of slots it would be 76; a slot has only a few of these messages
    expect(only(rows).bytes).toBeLessThan(50);
  });

  it('N6 W1 a tenant, a topic and an aggregate of recent days are found by index', async () => {
    const queries = [
      `tenant_id = 'a' AND id >= ${db.quoted}.id_at(now() - interval '1 day')`,
      `topic = 'rare' AND id >= ${db.quoted}.id_at(now() - interval '30 days')`,
      `aggregate_type = 'order' AND aggregate_id = '7'`,
    ];
    for (const condition of queries) {
      const found = await reads(() =>
        client.query(
          `SELECT id FROM ${db.quoted}.messages WHERE ${condition} ORDER BY id DESC LIMIT 50`,
        ),
      );
      // the partition of an almost finished day may be so small that a sequential scan is right
      expect(found.get('messages')?.seqRows, condition).toBeLessThan(history / 100);
    }
  });

  it('C10 N6 a claim reads only the messages of the tenants that it serves, if the planner knows of one with a backlog only', async () => {
    const fair = await makeQueue(db, { fairness: 'tenant' });
    const backlog = Array.from({ length: 5000 }, (_, n) => [
      { tenantId: 'noisy', payload: n },
      { tenantId: 'noisy', payload: n, key: String(n) },
    ]).flat();
    await fair.enqueueAll(backlog);
    // makes the lanes
    await fair.claim({ limit: 2, lanesFirst: true });
    await client.query(`DELETE FROM ${db.quoted}.deliveries WHERE tenant_id <> 'noisy'`);
    await client.query(`ANALYZE ${db.quoted}.deliveries, ${db.quoted}.lanes`);
    const others = Array.from({ length: 20 }, (_, n) => [
      { tenantId: `other ${n}`, payload: n },
      { tenantId: `other ${n}`, payload: n, key: 'mine' },
    ]).flat();
    await fair.enqueueAll(others);
    let claimed = 0;
    const found = await reads(async () => {
      claimed = (await fair.claim({ on: client, limit: 42 })).ids.length;
    });
    // the backlog has 10,000 messages, half of them in 5,000 lanes
    expect(claimed).toBe(42);
    expect(found.get('deliveries')?.indexRows).toBeLessThan(1000);
    expect(found.get('lanes')?.indexRows).toBeLessThan(1000);
  });
});
