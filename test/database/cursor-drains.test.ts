// Drains of subscriptions and of destinations in stream mode: they read what was committed when they began, release the
// cursor at once, and leave the rest to the next drain.

import { describe, expect, it, onTestFinished, test } from 'vitest';

import { drainSubscription } from '../../src/consumer/drain-subscription.js';
import type {
  SubscriptionDrainLimits,
  SubscriptionDrainReport,
} from '../../src/consumer/drain-subscription.js';
import type { StreamHandler, SubscribeOptions } from '../../src/consumer/subscribe.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { urlAs } from '../support/logins.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { Gate, deadLettersOf } from '../support/relay.js';
import { collect, cursorName, enqueue } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

type Drain = {
  readonly name: string;
  /** What the handler has processed, over all drains. */
  readonly ids: string[];
  readonly calls: ClaimedMessage[][];
  run(limits?: SubscriptionDrainLimits, handle?: StreamHandler): Promise<SubscriptionDrainReport>;
};

/** A function that lives for seconds: each run is a new subscription under the same name. */
function drainOf(topic: string, options: Partial<SubscribeOptions> = {}): Drain {
  const name = cursorName();
  const ids: string[] = [];
  const calls: ClaimedMessage[][] = [];
  const run: Drain['run'] = async (limits = {}, handle = () => undefined) =>
    drainSubscription(
      {
        name,
        database: { url: urlAs(db.url, 'test_relay'), schema: db.schema },
        topics: [topic],
        from: 'beginning',
        ...options,
      },
      async (messages, context) => {
        calls.push([...messages]);
        await handle(messages, context);
        ids.push(...messages.map(({ id }) => id));
      },
      limits,
    );
  return { name, ids, calls, run };
}

async function some(topic: string, count: number): Promise<string[]> {
  const ids = await enqueue(db, db.pool, ...Array.from({ length: count }, () => ({ topic })));
  return ids.toSorted();
}

async function cursorRow(name: string): Promise<{ free: boolean; tries: number }> {
  const { rows } = await db.query<{ free: boolean; tries: number }>(
    `SELECT NOT ${db.quoted}.is_taken('cursor ' || name) AS free, tries FROM ${db.quoted}.cursors WHERE name = $1`,
    [name],
  );
  return only(rows);
}

/** Makes the failed message of a cursor due now, as time would. */
async function passRetryDelay(name: string): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.cursors SET retry_at = clock_timestamp() - interval '1 second' WHERE name = $1`,
    [name],
  );
}

const done = (count: number): SubscriptionDrainReport => ({
  processed: count,
  succeeded: count,
  failed: 0,
  released: 0,
  finished: true,
  heldBy: null,
  retryInMs: null,
});

describe('a drain of a subscription', () => {
  test('N16 reads what is there in order, releases the cursor at once, and the next one goes on', async () => {
    const drain = drainOf('drain.order', { batchSize: 3 });
    const first = await some('drain.order', 10);
    expect(await drain.run()).toEqual(done(10));
    expect(drain.ids).toEqual(first);
    expect(await cursorRow(drain.name)).toMatchObject({ free: true });
    const second = await some('drain.order', 4);
    expect(await drain.run()).toEqual(done(4));
    expect(drain.ids).toEqual([...first, ...second]);
    // nothing is there: it ends although it might take an hour
    expect(await drain.run({ maxMs: 3_600_000 })).toEqual(done(0));
    expect(drain.calls.flat()).toHaveLength(14);
  });

  test('N16 ends although messages keep coming: it reads what was committed when it began', async () => {
    const drain = drainOf('drain.endless', { batchSize: 1 });
    const first = await some('drain.endless', 3);
    const report = await drain.run({}, async () => void (await some('drain.endless', 1)));
    expect(report).toEqual(done(3));
    expect(drain.ids).toEqual(first);
    expect(await drain.run()).toEqual(done(3));
  });

  test('N4 N16 does not wait for open transactions; a later one reads their messages', async () => {
    const drain = drainOf('drain.open');
    const client = await db.connect();
    await client.query('BEGIN');
    const [late] = await enqueue(db, client, { topic: 'drain.open' });
    const [early] = await enqueue(db, db.pool, { topic: 'drain.open' });
    expect(await drain.run()).toEqual(done(1));
    await client.query('COMMIT');
    expect(await drain.run()).toEqual(done(1));
    expect(drain.ids).toEqual([early, late]);
  });

  test('N16 beside another reader reads nothing, and names it', async () => {
    const drain = drainOf('drain.two');
    const ids = await some('drain.two', 5);
    const gate = new Gate();
    const reading = drain.run({}, async () => gate.pass());
    await waitFor(() => gate.waiting === 1, { what: 'the first drain to read' });
    const other = await drain.run({}, () => {
      throw new Error('two readers at once');
    });
    expect(other).toEqual({
      ...done(0),
      finished: false,
      heldBy: expect.stringMatching(/:\d+$/) as string,
    });
    gate.open();
    expect(await reading).toEqual(done(5));
    expect(await drain.run()).toEqual(done(0));
    expect(drain.ids).toEqual(ids);
  });

  test('N16 beside a subscription that runs all the time reads nothing either', async () => {
    const drain = drainOf('drain.beside');
    const reader = await collect(db, { name: drain.name, topics: ['drain.beside'] });
    await waitFor(() => reader.subscription.reading, { what: 'the reader' });
    expect(await drain.run()).toMatchObject({ processed: 0, finished: false });
    await reader.subscription.stop();
    expect(await drain.run()).toEqual(done(0));
  });

  test('N16 stops when its time is over, and the next one goes on where it was', async () => {
    const drain = drainOf('drain.time', { batchSize: 2 });
    const ids = await some('drain.time', 6);
    const maxMs = 1500;
    const endMs = performance.now() + maxMs;
    // its time is over while the first call is in flight, which may finish
    const report = await drain.run({ maxMs }, async () => {
      await waitFor(() => performance.now() > endMs + 100, { what: 'the end of its time' });
    });
    expect(report).toEqual({ ...done(2), finished: false });
    expect(await cursorRow(drain.name)).toMatchObject({ free: true });
    expect(await drain.run()).toEqual(done(4));
    expect(drain.ids).toEqual(ids);
  });

  test('N16 aborts a call that does not finish within the deadline of the stop', async () => {
    const drain = drainOf('drain.hangs', { stopDeadlineMs: 50 });
    const ids = await some('drain.hangs', 2);
    let aborted = false;
    const report = await drain.run({ maxMs: 1000 }, async (_messages, { signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      aborted = true;
      await new Promise(() => {});
    });
    expect(report).toEqual({ ...done(0), finished: false });
    expect(aborted).toBe(true);
    expect(await cursorRow(drain.name)).toEqual({ free: true, tries: 0 });
    expect(await drain.run()).toEqual(done(2));
    expect(drain.ids).toEqual(ids);
  });

  test('N16 reads no more than its limit of messages', async () => {
    const drain = drainOf('drain.limit', { batchSize: 3 });
    const ids = await some('drain.limit', 10);
    expect(await drain.run({ maxMessages: 4 })).toEqual({ ...done(4), finished: false });
    expect(drain.ids).toEqual(ids.slice(0, 4));
    expect(await drain.run({ maxMessages: 6 })).toEqual(done(6));
    expect(drain.ids).toEqual(ids);
  });

  test('N16 a signal ends it, and it says how far it came', async () => {
    const stop = new AbortController();
    const drain = drainOf('drain.signal', { batchSize: 1, signal: stop.signal });
    await some('drain.signal', 3);
    const report = await drain.run({}, () => stop.abort());
    expect(report).toEqual({ ...done(1), finished: false });
    expect(await cursorRow(drain.name)).toMatchObject({ free: true });
    await expect(drain.run()).rejects.toThrow('abort');
  });

  test('N16 refuses limits and handlers that it cannot use', async () => {
    const drain = drainOf('drain.refused');
    await expect(drain.run({ maxMs: 0 })).rejects.toThrow('drainSubscription.maxMs is 0');
    const none = undefined as unknown as StreamHandler;
    await expect(drainSubscription({ name: 'x' }, none)).rejects.toThrow('drainSubscription is');
  });
});

describe('a message that fails in a drain', () => {
  const retry = { delaysMs: [3_600_000, 3_600_000] };

  test('N16 M6 is tried once in each, when it is due, and is parked after its last try', async () => {
    const topic = 'drain.fails';
    const drain = drainOf(topic, { retry });
    const ids = await some(topic, 8);
    const poison = ids[2];
    const fail: StreamHandler = (messages) => {
      if (messages.some(({ id }) => id === poison)) throw new Error('no');
    };
    const alone = () => drain.calls.filter((call) => call.length === 1 && call[0]?.id === poison);
    const waits = { ...done(0), retryInMs: expect.closeTo(3_600_000, -5) as number };
    // the rest waits behind it, so nothing else is due
    expect(await drain.run({}, fail)).toEqual({ ...waits, processed: 3, succeeded: 2, failed: 1 });
    const calls = drain.calls.length;
    expect(await drain.run({}, fail)).toEqual(waits);
    expect(drain.calls).toHaveLength(calls);
    expect(await cursorRow(drain.name)).toEqual({ free: true, tries: 1 });
    await passRetryDelay(drain.name);
    expect(await drain.run({}, fail)).toEqual({ ...waits, processed: 1, failed: 1 });
    // by itself, without the neighbours that it would fail
    expect(drain.calls).toHaveLength(calls + 1);
    await passRetryDelay(drain.name);
    expect(await drain.run({}, fail)).toEqual({ ...done(5), processed: 6, failed: 1 });
    expect(alone().map(([message]) => message?.tries)).toEqual([1, 2, 3]);
    expect(drain.ids).toEqual(ids.filter((id) => id !== poison));
    expect(await deadLettersOf(db, drain.name)).toMatchObject([
      { message_id: poison, tries: 3, reason: 'exhausted' },
    ]);
  });

  test('N16 continues at once when it succeeds', async () => {
    const topic = 'drain.recovers';
    const drain = drainOf(topic, { retry });
    const ids = await some(topic, 4);
    await drain.run({}, () => {
      throw new Error('not yet');
    });
    await passRetryDelay(drain.name);
    expect(await drain.run()).toEqual(done(4));
    expect(drain.ids).toEqual(ids);
    expect(drain.calls.slice(-2).map((call) => call.length)).toEqual([1, 3]);
  });

  test('N16 W5 is due for the next drain when an operator makes it due', async () => {
    const topic = 'drain.now';
    const drain = drainOf(topic, { retry });
    const other = drainOf('drain.later', { retry });
    await some('drain.later', 1);
    const ids = await some(topic, 2);
    const fail = () => {
      throw new Error('no');
    };
    await Promise.all([drain.run({}, fail), other.run({}, fail)]);
    const { rows } = await db.query<{ count: number }>(
      `SELECT ${db.quoted}.retry_now($1, actor => 'ada') AS count`,
      [drain.name],
    );
    expect(rows).toEqual([{ count: 1 }]);
    expect(await drain.run()).toEqual(done(2));
    expect(drain.ids).toEqual(ids);
    expect(await other.run()).toMatchObject({ processed: 0 });
  });

  test('N16 is tried again in the same drain if it is due at once', async () => {
    const topic = 'drain.at-once';
    const drain = drainOf(topic, { retry: { delaysMs: [0, 0] } });
    const [id] = await some(topic, 1);
    const report = await drain.run({}, ([message]) => {
      if ((message?.tries ?? 0) < 3) throw new Error('not yet');
    });
    expect(report).toEqual({ ...done(1), processed: 3, failed: 2 });
    expect(drain.ids).toEqual([id]);
  });

  test('M6 keeps its tries and its delay when another reader takes over', async () => {
    const topic = 'drain.takes-over';
    const drain = drainOf(topic, { retry });
    const [id] = await some(topic, 1);
    await drain.run({}, () => {
      throw new Error('no');
    });
    const reader = await collect(db, { name: drain.name, topics: [topic], retry });
    expect(reader.subscription.reading).toBe(true);
    await reader.subscription.stop();
    expect(reader.ids).toEqual([]);
    await passRetryDelay(drain.name);
    const next = await collect(db, { name: drain.name, topics: [topic], retry });
    await waitFor(() => next.ids.length === 1, { what: 'its second try' });
    expect(next.messages.map(({ tries }) => tries)).toEqual([2]);
    expect(next.ids).toEqual([id]);
  });

  test('N16 that is parked and retried by an operator comes in the next drain', async () => {
    const topic = 'drain.letters';
    const drain = drainOf(topic, { retry: { maxAttempts: 1 } });
    const [id] = await some(topic, 1);
    const report = await drain.run({}, () => {
      throw new Error('no');
    });
    expect(report).toEqual({ ...done(0), processed: 1, failed: 1 });
    await db.query(`SELECT ${db.quoted}.retry_dead_letters(destination => $1)`, [drain.name]);
    expect(await drain.run()).toEqual(done(1));
    expect(drain.ids).toEqual([id]);
  });

  it('N16 that is due when the destination is paused waits for the operator', async () => {
    const drain = drainOf('drain.paused');
    const ids = await some('drain.paused', 2);
    await drain.run({ maxMessages: 1 });
    const pause = (paused: boolean) =>
      db.query(`SELECT ${db.quoted}.set_paused($1, $2)`, [drain.name, paused]);
    await pause(true);
    onTestFinished(async () => void (await pause(false)));
    expect(await drain.run()).toEqual(done(0));
    await pause(false);
    expect(await drain.run()).toEqual(done(1));
    expect(drain.ids).toEqual(ids);
  });
});
