// Cursors: the log is read in order, no late commit is skipped, and a returning reader continues at the cursor.

import { setTimeout as delay } from 'node:timers/promises';

import { beforeAll, describe, expect, test } from 'vitest';

import {
  collect,
  cursorName,
  enqueue,
  enqueueKeyed,
  makeStreams,
  randomFrom,
} from '../support/streams.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

beforeAll(() => makeStreams(db));

/** A reader without snapshots: everything above the last id it has seen. */
function naiveReader() {
  const ids: string[] = [];
  const stop = new AbortController();
  const done = (async () => {
    let last = '00000000-0000-0000-0000-000000000000';
    while (!stop.signal.aborted) {
      const { rows } = await db.query<{ id: string }>(
        `SELECT id FROM ${db.quoted}.messages WHERE id > $1 ORDER BY id LIMIT 100`,
        [last],
      );
      ids.push(...rows.map(({ id }) => id));
      last = rows.at(-1)?.id ?? last;
      await delay(2);
    }
  })();
  return {
    ids,
    async stop() {
      stop.abort();
      await done;
    },
  };
}

test('N4 with overlapping transactions, out-of-order commits and rollbacks, every message is read once, and keys are in order', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = randomFrom(seed);
  const committed: string[] = [];
  const reader = await collect(db, { batchSize: 7 });
  const naive = naiveReader();

  const holder = await db.connect();
  await holder.query('BEGIN');
  const held = await enqueue(db, holder, {});

  const producer = async (): Promise<void> => {
    const client = await db.connect();
    for (let round = 0; round < 40; round += 1) {
      await client.query('BEGIN');
      const ids: string[] = [];
      if (random() < 0.5)
        ids.push(
          ...(await enqueue(
            db,
            client,
            ...Array.from({ length: 1 + Math.floor(random() * 9) }, () => ({})),
          )),
        );
      if (random() < 0.7) {
        const first = Math.floor(random() * 4);
        // in a fixed order, to avoid deadlocks
        for (const key of [first, first + 1].filter(() => random() < 0.7))
          ids.push(await enqueueKeyed(db, client, `key-${key}`));
      }
      await delay(random() < 0.1 ? 80 * random() : 8 * random());
      const keep = random() < 0.8;
      await client.query(keep ? 'COMMIT' : 'ROLLBACK');
      if (keep) committed.push(...ids);
    }
    await client.end();
  };
  await Promise.all(Array.from({ length: 6 }, producer));

  // all of it arrives while the first transaction is still open, and nothing of that one
  await waitFor(() => reader.ids.length >= committed.length, {
    what: `everything of seed ${seed}`,
  });
  expect(new Set(reader.ids), `seed ${seed}`).toEqual(new Set(committed));
  await holder.query('COMMIT');
  await waitFor(() => reader.ids.includes(only(held)), { what: 'what was held' });

  expect(reader.ids.toSorted(), `seed ${seed}`).toEqual([...committed, ...held].toSorted());
  const sequences = new Map<string, number[]>();
  for (const { key, sequence } of reader.messages) {
    if (key !== null) sequences.set(key, [...(sequences.get(key) ?? []), Number(sequence)]);
  }
  expect(sequences.size).toBeGreaterThan(2);
  for (const [key, list] of sequences)
    expect(list, `${key} of seed ${seed}`).toEqual(list.toSorted((a, b) => a - b));

  await naive.stop();
  const missed = [...committed, ...held].filter((id) => !naive.ids.includes(id));
  expect(missed, 'a reader by id loses late commits').toContain(only(held));
}, 60_000);

test('N4 a message that was enqueued long before the others and commits after them is read at once, and alone', async () => {
  const reader = await collect(db, { from: 'now' });
  const late = await db.connect();
  await late.query('BEGIN');
  const [old = ''] = await enqueue(db, late, {});
  const others = await enqueue(db, db.pool, {}, {}, {});
  await waitFor(() => reader.ids.length === 3, { what: 'the others' });
  await late.query('COMMIT');
  await waitFor(() => reader.ids.length === 4, { what: 'the late one' });
  expect(reader.ids).toEqual([...others, old]);
});

test('N4 messages of a clock that stepped back are read too', async () => {
  const reader = await collect(db, { from: 'now' });
  await enqueue(db, db.pool, {});
  await waitFor(() => reader.ids.length === 1, { what: 'the first' });
  const { rows } = await db.query<{ id: string }>(
    `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
     SELECT 2, overlay(${db.quoted}.id_at(now() - interval '1 hour')::text PLACING substr(${db.quoted}.new_id()::text, 15) FROM 15)::uuid,
            now(), pg_current_xact_id(), 'default', 'user.registered', '{}' RETURNING id`,
  );
  await waitFor(() => reader.ids.includes(only(rows).id), {
    what: 'the message with the early id',
  });
  expect(reader.ids).toHaveLength(2);
});

test('N4 messages of one key come in the order of their sequence, whatever their ids are', async () => {
  const reader = await collect(db, { from: 'now', topics: ['key.inverted'] });
  await db.query(
    `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, sequence, key, namespace, topic, payload)
     SELECT 2, overlay(${db.quoted}.id_at(now() - n * interval '1 second')::text PLACING substr(${db.quoted}.new_id()::text, 15) FROM 15)::uuid,
            now(), pg_current_xact_id(), n, 'inverted', 'default', 'key.inverted', '{}' FROM generate_series(1, 12) n`,
  );
  await waitFor(() => reader.ids.length === 12, { what: 'all of them' });
  expect(reader.messages.map(({ sequence }) => Number(sequence))).toEqual(
    Array.from({ length: 12 }, (_, n) => n + 1),
  );
});

test('N4 a new cursor starts at the beginning or from now on, and an existing one continues', async () => {
  const before = await enqueue(db, db.pool, { topic: 'start.first' });
  const open = await db.connect();
  await open.query('BEGIN');
  const under = await enqueue(db, open, { topic: 'start.second' });
  const name = cursorName();
  const fromNow = await collect(db, { name, from: 'now', topics: ['start.*'] });
  const fromBeginning = await collect(db, { topics: ['start.*'] });
  await open.query('COMMIT');
  const after = await enqueue(db, db.pool, { topic: 'start.third' });
  await waitFor(() => fromNow.ids.length === 2 && fromBeginning.ids.length === 3, { what: 'both' });
  expect(fromNow.ids).toEqual([...under, ...after]);
  expect(fromBeginning.ids.toSorted()).toEqual([...before, ...under, ...after].toSorted());

  await fromNow.subscription.stop();
  const missed = await enqueue(db, db.pool, { topic: 'start.fourth' });
  const again = await collect(db, { name, from: 'now', topics: ['start.*'] });
  await waitFor(() => again.ids.length === 1, { what: 'what came while no reader ran' });
  expect(again.ids).toEqual(missed);
});

describe('N4 the messages of a subscription', () => {
  test('are selected by topics, namespace and tenant', async () => {
    const reader = await collect(db, {
      from: 'now',
      topics: ['pick.one', 'pick.two.*'],
      namespace: 'shop',
      tenantId: 'acme',
    });
    const fields = { namespace: 'shop', tenantId: 'acme' };
    const wanted = await enqueue(
      db,
      db.pool,
      { ...fields, topic: 'pick.one' },
      { ...fields, topic: 'pick.two.a' },
    );
    await enqueue(
      db,
      db.pool,
      { ...fields, topic: 'pick.three' },
      { topic: 'pick.one', tenantId: 'acme' },
      { ...fields, topic: 'pick.one', tenantId: 'other' },
    );
    const last = await enqueue(db, db.pool, { ...fields, topic: 'pick.one' });
    await waitFor(() => reader.ids.includes(only(last)), { what: 'the last' });
    expect(reader.ids).toEqual([...wanted, ...last]);
  });

  test('come in batches within the limits of count and bytes, a larger message alone', async () => {
    const topic = 'sizes.given';
    const text = (bytes: number) => ({ topic, payload: { text: randomText(bytes) } });
    const ids = await enqueue(db, db.pool, ...[400, 400, 400, 3000, 10, 10, 10].map(text));
    const byCount = await collect(db, { topics: [topic], batchSize: 3 });
    const byBytes = await collect(db, { topics: [topic], batchBytes: 1024 });
    await waitFor(() => byCount.ids.length === 7 && byBytes.ids.length === 7, { what: 'all' });
    const inOrder = ids.toSorted();
    expect(byCount.ids).toEqual(inOrder);
    expect(byBytes.ids).toEqual(inOrder);
    for (const batch of byCount.batches) expect(batch.length).toBeLessThan(4);
    expect(byCount.batches.length).toBeLessThan(7);
    for (const batch of byBytes.batches) expect(batch.length).toBeLessThan(6);
    expect(byBytes.batches).toContainEqual([
      only(byBytes.messages.filter(({ payloadText }) => payloadText.length > 2000)).id,
    ]);
  });

  test('carry every field, and the payload as text', async () => {
    const reader = await collect(db, { from: 'now', topics: ['field.all'] });
    const fields = {
      topic: 'field.all',
      namespace: 'shop',
      tenantId: 'acme',
      key: 'k',
      dedupeKey: 'acme/1',
      aggregateType: 'user',
      aggregateId: '7',
      headers: { trace: 'x' },
      payload: { big: 1 },
    };
    await enqueue(db, db.pool, fields);
    const [message] = await waitFor(() => reader.messages.length > 0 && reader.messages, {
      what: 'it',
    });
    const {
      topic,
      namespace,
      tenantId,
      key,
      dedupeKey,
      aggregateType,
      aggregateId,
      headers,
      payload,
    } = message ?? {};
    expect({
      topic,
      namespace,
      tenantId,
      key,
      dedupeKey,
      aggregateType,
      aggregateId,
      headers,
      payload,
    }).toEqual(fields);
    expect(message?.payloadText).toBe('{"big": 1}');
    expect(message?.tries).toBe(1);
  });

  test('have no delivery, and are not counted as unrouted', async () => {
    await db.query(
      `SELECT ${db.quoted}.delete_cursor(name, force => true) FROM ${db.quoted}.cursor_status()`,
    );
    await collect(db, { from: 'now', topics: ['only.streamed'] });
    const [id] = await enqueue(db, db.pool, { topic: 'only.streamed' });
    const [other] = await enqueue(db, db.pool, { topic: 'not.routed' });
    const { rows } = await db.query(
      `SELECT message_id AS id FROM ${db.quoted}.unrouted_messages WHERE message_id = ANY ($1)
       UNION ALL SELECT message_id FROM ${db.quoted}.deliveries WHERE message_id = ANY ($1)`,
      [[id, other]],
    );
    expect(rows).toEqual([{ id: other }]);
  });

  test('are found among many unwanted ones, however small the batches', async () => {
    const others = Array.from({ length: 90 }, () => ({ topic: 'rare.other' }));
    await enqueue(db, db.pool, ...others);
    const [first] = await enqueue(db, db.pool, { topic: 'rare.wanted' });
    await enqueue(db, db.pool, ...others);
    const [second] = await enqueue(db, db.pool, { topic: 'rare.wanted' });
    const reader = await collect(db, { topics: ['rare.wanted'], batchSize: 1 });
    await waitFor(() => reader.ids.length === 2, { what: 'both' });
    expect(reader.ids).toEqual([first, second]);
  });
});

test('N4 the cost of a query depends on the unread messages, not on those read before', async () => {
  const late = await db.connect();
  await late.query('BEGIN');
  const [old] = await enqueue(db, late, {});
  await db.query(
    `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
     SELECT 2, ${db.quoted}.new_id(), now(), pg_current_xact_id(), 'default', 'user.registered', '{}' FROM generate_series(1, 20000)`,
  );
  await db.query(`ANALYZE ${db.quoted}.messages`);
  const snapshot = async () =>
    only((await db.query<{ s: string }>('SELECT pg_current_snapshot()::text AS s')).rows).s;
  const seen = await snapshot();
  await late.query('COMMIT');
  const [fresh] = await enqueue(db, db.pool, {});

  type Page = { until: string; finished: boolean; ids: string[] };
  const { ids, touched } = await db.inTransaction(async (client) => {
    const { rows: windows } = await client.query<{ target: string; lowest: string }>(
      `SELECT target::text, lowest FROM ${db.quoted}.open_window($1)`,
      [seen],
    );
    const { target, lowest } = only(windows);
    const found: string[] = [];
    for (let position: string | null = null, finished = false; !finished;) {
      const { rows }: { rows: Page[] } = await client.query<Page>(
        `SELECT p.until, p.finished, ARRAY (
                  SELECT r.message_id FROM ${db.quoted}.read_page($1, $2, p.after, p.until, p.ids, NULL, NULL, NULL) r) AS ids
           FROM ${db.quoted}.plan_window($1, $2, $3, $4, 100, 1000000, 1, NULL, NULL, NULL) p`,
        [seen, target, position, lowest],
      );
      const page: Page = only(rows);
      found.push(...page.ids);
      position = page.until;
      finished = page.finished;
    }
    const { rows: stats } = await client.query<{ touched: string }>(
      `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) AS touched
         FROM pg_stat_xact_all_tables WHERE schemaname = $1 AND relname LIKE 'messages_%'`,
      [db.schema],
    );
    return { ids: found, touched: Number(only(stats).touched) };
  });
  expect(ids).toEqual([old, fresh]);
  expect(touched).toBeGreaterThan(0);
  // usually a few; some hundred of earlier tests while old transactions of other databases run on the same server
  expect(touched).toBeLessThan(2000);
});

function randomText(length: number): string {
  return Array.from({ length }, () => Math.random().toString(36).slice(-1)).join('');
}
