// A claim and a page of the log are limited by the bytes that will be read: the text of payload and headers, which may
// be a thousand times the stored size. Every path that queues a delivery stores the same size.

import { describe, expect, it } from 'vitest';

import { addRoute } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { replay } from '../support/replays.js';
import { releaseLease, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();
const mebibyte = 1024 * 1024;

/** Half a megabyte as text, six kilobytes stored. */
const compressible = { text: 'x'.repeat(500_000) };
/** As long as text, fifty bytes stored. */
const numbers = '[1e131071, 1e131071, 1e131071, 1e131071]';

async function enqueueNumbers(queue: Queue, count: number, key: string | null): Promise<void> {
  for (let index = 0; index < count; index += 1)
    await db.query(`SELECT ${db.quoted}.enqueue($1, $2, key => $3)`, [queue.topic, numbers, key]);
}

describe('a claim', () => {
  it.each([
    ['of the queue', {}],
    ['of a key', { key: 'k' }],
  ])(
    'C1 %s is limited by the size of its messages as text, not by their compressed size',
    async (_what, fields) => {
      const queue = await makeQueue(db);
      await queue.enqueue(5, { payload: compressible, ...fields });
      expect((await queue.claim({ maxBytes: mebibyte })).rows).toHaveLength(2);
    },
  );

  it.each([
    ['of the queue', null],
    ['of a key', 'k'],
  ])('C1 %s counts numbers in their written-out form', async (_what, key) => {
    const queue = await makeQueue(db);
    await enqueueNumbers(queue, 3, key);
    expect((await queue.claim({ maxBytes: mebibyte })).rows).toHaveLength(1);
  });
});

it('N4 a page of the log is limited by the size of its messages as text, not by their compressed size', async () => {
  const topic = 'log.bytes';
  await db.query(
    `SELECT ${db.quoted}.enqueue_many(jsonb_agg(jsonb_build_object('topic', '${topic}', 'payload', $1::jsonb)))
       FROM generate_series(1, 5)`,
    [JSON.stringify(compressible)],
  );
  const { rows } = await db.query<{ messages: number }>(
    `SELECT p.messages FROM ${db.quoted}.open_window(${db.quoted}.nothing_seen()) w,
            LATERAL ${db.quoted}.plan_window(${db.quoted}.nothing_seen(), w.target, NULL, w.lowest, 100, ${mebibyte}, 1,
              ARRAY['${topic}'], ARRAY[NULL], ARRAY[NULL]) p`,
  );
  expect(rows).toEqual([{ messages: 2 }]);
});

describe('the bytes of a delivery', () => {
  const headers = { trace: 'é'.repeat(1000) };

  /** For each pending delivery: the stored size, and the size of the text. */
  async function expectTextSizes(queue: Queue, count: number): Promise<void> {
    const { rows } = await db.query<{ bytes: number; read: number }>(
      `SELECT d.bytes, octet_length(m.payload::text) + coalesce(octet_length(m.headers::text), 0) AS read
         FROM ${db.quoted}.deliveries d JOIN ${db.quoted}.messages m ON m.id = d.message_id
        WHERE d.destination_id = $1`,
      [queue.id],
    );
    expect(rows).toHaveLength(count);
    for (const { bytes, read } of rows) expect(bytes).toBe(read);
  }

  it('C1 are those of the text that will be read, alone and in a batch, with a key and without', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(1, { payload: compressible, headers });
    await queue.enqueue(1, { payload: compressible, headers, key: 'k' });
    await enqueueNumbers(queue, 1, null);
    await queue.enqueueAll([
      { payload: compressible },
      { payload: 1, headers },
      { payload: { n: 1e300 }, key: 'k' },
    ]);
    await expectTextSizes(queue, 6);
  });

  it('C1 stay the same when a message is requeued, dies and returns, or is replayed', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({ payload: compressible, headers });
    const { rows } = await db.query<{ bytes: number }>(
      `SELECT bytes FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    expect(only(rows).bytes).toBe(JSON.stringify(compressible).length + 1 + 2000 + 13);
    await releaseLease(db, await queue.claim());
    await expectTextSizes(queue, 1);
    await settle(db, await queue.claim(), [{ id, outcome: 'retry' }]);
    await expectTextSizes(queue, 1);
    await queue.makeDue();
    await queue.kill(id);
    await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [queue.name]);
    await expectTextSizes(queue, 1);
    await settleDelivered(db, await queue.claim());
    await replay(db, queue.name, { ids: [id] });
    await expectTextSizes(queue, 1);
  });

  it('C1 are measured for a message that is routed later, and for a test message', async () => {
    const queue = await makeQueue(db);
    await db.query(`SELECT ${db.quoted}.enqueue('later', $1, headers => $2)`, [
      JSON.stringify(compressible),
      headers,
    ]);
    await addRoute(db, queue.id, 'later');
    await db.query(`SELECT ${db.quoted}.route_unrouted()`);
    await expectTextSizes(queue, 1);
    await db.query(`SELECT ${db.quoted}.send_test($1)`, [queue.name]);
    await expectTextSizes(queue, 2);
  });
});
