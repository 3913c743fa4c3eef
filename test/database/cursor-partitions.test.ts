// Partitions of a cursor: readers share them, take over from each other, and follow a change of their number. Every
// message is read once, and the messages of a key come in order.

import { setTimeout as delay } from 'node:timers/promises';

import { describe, expect, inject, onTestFinished, test } from 'vitest';

import { createRelay } from '../../src/config.js';
import { drainSubscription } from '../../src/consumer/drain-subscription.js';
import { subscribe } from '../../src/consumer/subscribe.js';
import type { SubscribeOptions, Subscription } from '../../src/consumer/subscribe.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { batchHandler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { cli, environmentOf } from '../support/cli.js';
import { expectWell, look } from '../support/doctor.js';
import { urlAs } from '../support/logins.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { Gate } from '../support/relay.js';
import { collect, cursorName, enqueue, randomFrom } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const database = () => ({ url: urlAs(db.url, 'test_relay'), schema: db.schema });

const isSubset = (some: readonly string[], all: Set<string>) => some.every((id) => all.has(id));

/** What all readers of a name have processed, in the order in which their calls ended. */
class Readers {
  readonly name = cursorName();
  readonly topic = `shared.${this.name}`;
  readonly messages: ClaimedMessage[] = [];
  readonly enqueued: string[] = [];
  handle: (messages: readonly ClaimedMessage[]) => Promise<void> | void = () => {};

  readonly options = {
    name: this.name,
    topics: [this.topic],
    from: 'beginning',
    database: database(),
    pollMs: 20,
    leaseMs: 5000,
    batchSize: 10,
    retry: { maxAttempts: 3, baseMs: 1, maxMs: 5 },
  } satisfies SubscribeOptions;

  async start(partitions: number, more: Partial<SubscribeOptions> = {}): Promise<Subscription> {
    const subscription = await subscribe({ ...this.options, partitions, ...more }, this.#process);
    onTestFinished(() => subscription.stop());
    return subscription;
  }

  readonly #process = async (messages: readonly ClaimedMessage[]) => {
    await this.handle(messages);
    this.messages.push(...messages);
  };

  async drain(partitions: number, maxMessages = 1_000_000, more: Partial<SubscribeOptions> = {}) {
    return drainSubscription({ ...this.options, partitions, ...more }, this.#process, {
      maxMessages,
    });
  }

  /** Enqueues messages of some keys, and some without a key. */
  async enqueue(count: number, on: Parameters<typeof enqueue>[1] = db.pool): Promise<string[]> {
    const ids = await enqueue(
      db,
      on,
      ...Array.from({ length: count }, (_, index) => ({
        topic: this.topic,
        ...(index % 5 !== 0 && { key: `${this.name} ${index % 13}` }),
      })),
    );
    this.enqueued.push(...ids);
    return ids;
  }

  /** Enqueues all the time, until the returned function is called. */
  produce(): () => Promise<void> {
    const stop = new AbortController();
    const produced = (async () => {
      while (!stop.signal.aborted) {
        await this.enqueue(20);
        await delay(30);
      }
    })();
    return async () => {
      stop.abort();
      await produced;
    };
  }

  async everything(): Promise<void> {
    await waitFor(() => isSubset(this.enqueued, this.ids), { what: 'all messages' });
  }

  get ids(): Set<string> {
    return new Set(this.messages.map(({ id }) => id));
  }

  expectOnceAndInOrder(): void {
    expect(this.messages.map(({ id }) => id).toSorted()).toEqual(this.enqueued.toSorted());
    this.expectInOrder();
  }

  expectInOrder(): void {
    const sequences = new Map<string, number[]>();
    for (const { key, sequence } of this.messages)
      if (key !== null) sequences.set(key, [...(sequences.get(key) ?? []), Number(sequence)]);
    for (const [key, numbers] of sequences)
      expect([key, numbers]).toEqual([key, numbers.toSorted((one, other) => one - other)]);
  }
}

async function collected<T>(into: T[], items: readonly T[]): Promise<void> {
  await Promise.resolve(into.push(...items));
}

type Row = { from: number; to: number; old: boolean; generation: number };

async function rowsOf(name: string): Promise<Row[]> {
  const { rows } = await db.query<Row>(
    `SELECT hash_from AS from, hash_to AS to, until IS NOT NULL AS old, generation FROM ${db.quoted}.cursors
      WHERE name = $1 ORDER BY generation, hash_from`,
    [name],
  );
  return rows;
}

/** While the destination is paused, a change of the partitions applies, and nothing is read. */
async function setPaused(name: string, paused: boolean): Promise<void> {
  await db.query(`SELECT ${db.quoted}.set_paused($1, $2)`, [name, paused]);
}

/** Each partition is held by one of the readers, which have so many of them. */
async function shares(readers: readonly Subscription[], ...counts: number[]): Promise<void> {
  const held = () => readers.map(({ partitions }) => partitions.length);
  const all = () => readers.flatMap(({ partitions }) => partitions).toSorted((a, b) => a - b);
  const total = counts.reduce((sum, count) => sum + count, 0);
  await waitFor(
    () =>
      String(held()) === String(counts) && new Set(all()).size === total && all().length === total,
    { what: `shares ${String(counts)}, not ${String(held())}` },
  );
}

describe('N4 readers with partitions', () => {
  test('share them, read every message once, and keep the order of each key', async () => {
    const readers = new Readers();
    const seen = new Map<string, Set<number>>();
    const of = async (reader: number) => {
      const subscription = await subscribe({ ...readers.options, partitions: 4 }, (messages) => {
        readers.messages.push(...messages);
        for (const { key } of messages)
          if (key !== null) seen.set(key, (seen.get(key) ?? new Set()).add(reader));
      });
      onTestFinished(() => subscription.stop());
      return subscription;
    };
    const both = [await of(1), await of(2)];
    await shares(both, 2, 2);
    for (let round = 0; round < 10; round += 1) await readers.enqueue(50);
    await readers.everything();
    readers.expectOnceAndInOrder();
    // both had work, and no key was read by both
    expect(new Set([...seen.values()].flatMap((by) => [...by]))).toEqual(new Set([1, 2]));
    for (const by of seen.values()) expect(by.size).toBe(1);
  });

  test('come and go: the shares follow, and no message is read twice', async () => {
    const readers = new Readers();
    const stopProducing = readers.produce();
    const first = await readers.start(4);
    await shares([first], 4);
    const second = await readers.start(4);
    await shares([first, second], 2, 2);
    const third = await readers.start(4);
    await shares([first, second, third], 2, 1, 1);
    const others = [await readers.start(4), await readers.start(4)];
    // the last one stands by
    await shares([first, second, third, ...others], 1, 1, 1, 1, 0);
    await first.stop();
    await shares([second, third, ...others], 1, 1, 1, 1);
    await Promise.all([second.stop(), ...others.map((other) => other.stop())]);
    await shares([third], 4);
    await stopProducing();
    await readers.everything();
    readers.expectOnceAndInOrder();
    await third.stop();
    const { rowCount } = await db.query(
      `SELECT FROM ${db.quoted}.cursor_readers WHERE cursor = $1`,
      [readers.name],
    );
    expect(rowCount).toBe(0);
  });

  test('take over from one that died, when its leases have ended', async () => {
    const readers = new Readers();
    await readers.drain(3);
    const dead = crypto.randomUUID();
    for (let count = 0; count < 3; count += 1) {
      await db.query(`SELECT ${db.quoted}.join_cursor($1, $2, 2000)`, [readers.name, dead]);
      await db.query(`SELECT ${db.quoted}.take_cursor($1, $2, 'dead', 2000)`, [readers.name, dead]);
    }
    const living = await readers.start(3);
    expect(living.partitions).toEqual([]);
    await readers.enqueue(60);
    await shares([living], 3);
    await readers.everything();
    readers.expectOnceAndInOrder();
  });

  test('a reader of a partition with a slow call does not hold up the others', async () => {
    const readers = new Readers();
    const gate = new Gate();
    onTestFinished(() => gate.open());
    let slow: ClaimedMessage | undefined;
    readers.handle = async (messages) => {
      const keyed = messages.find(({ key }) => key !== null);
      if (slow === undefined && keyed !== undefined) {
        slow = keyed;
        await gate.pass();
      }
    };
    const reader = await readers.start(4);
    await readers.enqueue(200);
    await shares([reader], 4);
    await waitFor(() => slow !== undefined && readers.messages.length > 100, {
      what: 'the others',
    });
    expect(readers.ids.has(slow?.id ?? '')).toBe(false);
    gate.open();
    await readers.everything();
    readers.expectOnceAndInOrder();
  });

  test('a message that fails stops only its partition, and its tries go on with another reader', async () => {
    const readers = new Readers();
    const tries: number[] = [];
    let failing = true;
    const failure = `${readers.name} 3`;
    readers.handle = (messages) => {
      for (const { key, tries: count } of messages)
        if (failing && key === failure) {
          tries.push(count);
          throw new Error('not this one');
        }
    };
    const retry = { maxAttempts: 1000, baseMs: 1, maxMs: 1 };
    const first = await readers.start(4, { retry, whenExhausted: 'block' });
    await readers.enqueue(130);
    await waitFor(() => readers.messages.length > 60 && tries.length > 3, { what: 'the others' });
    await waitFor(
      async () => {
        const { rows } = await db.query<{ stopped: number; shown: string }>(
          `SELECT (SELECT count(*)::int FROM ${db.quoted}.cursor_partitions() WHERE name = $1 AND tries > 0) AS stopped,
                  (SELECT error_message FROM ${db.quoted}.cursor_status() WHERE name = $1) AS shown`,
          [readers.name],
        );
        return only(rows).stopped === 1 && only(rows).shown === 'not this one';
      },
      { what: 'the one partition that has stopped' },
    );
    await first.stop();
    failing = false;
    await readers.start(4, { retry, whenExhausted: 'block' });
    await readers.everything();
    readers.expectOnceAndInOrder();
    const tried = readers.messages.find(({ key }) => key === failure)?.tries;
    expect(tried).toBeGreaterThan(2);
  });

  test('a relay with a destination in stream mode has them too, within its rate limit', async () => {
    const got: ClaimedMessage[] = [];
    const topic = 'partitions.relay';
    const relay = createRelay({
      database: database(),
      destinations: {
        river: batchHandler(async (messages) => collected(got, messages), {
          mode: 'stream',
          from: 'beginning',
          partitions: 3,
          rate: { perSecond: 300, burst: 30 },
        }),
      },
      routes: [{ topic, to: 'river' }],
    });
    const startedMs = performance.now();
    await relay.start();
    onTestFinished(() => relay.stop());
    const messages = Array.from({ length: 300 }, (_, n) => ({ topic, key: `river ${n % 30}` }));
    const ids = await enqueue(db, db.pool, ...messages);
    await waitFor(() => got.length >= ids.length, { what: 'all of them' });
    expect(got.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
    // 30 at once, and then 300 in a second
    expect(performance.now() - startedMs).toBeGreaterThan(800);
    expect(await rowsOf('river')).toHaveLength(3);
  });
});

describe('N4 a change of the number of partitions', () => {
  test('to a multiple splits them at their positions: a backlog is shared at once', async () => {
    const readers = new Readers();
    await readers.enqueue(400);
    // in the middle of a window
    await readers.drain(1, 55);
    expect(await readers.drain(4, 0 + 20)).toMatchObject({ finished: false });
    expect(await rowsOf(readers.name)).toEqual(
      [0, 16_384, 32_768, 49_152].map((from) => ({
        from,
        to: from + 16_384,
        old: false,
        generation: 0,
      })),
    );
    await readers.drain(4);
    readers.expectOnceAndInOrder();
  });

  test('to fewer reads the old ones to a common end first', async () => {
    const readers = new Readers();
    await readers.enqueue(400);
    await readers.drain(4, 155);
    await setPaused(readers.name, true);
    await readers.drain(2);
    const rows = await rowsOf(readers.name);
    await setPaused(readers.name, false);
    expect(rows.filter(({ old }) => old)).toHaveLength(4);
    expect(rows.filter(({ old }) => !old)).toEqual([
      { from: 0, to: 32_768, old: false, generation: 1 },
      { from: 32_768, to: 65_536, old: false, generation: 1 },
    ]);
    await readers.enqueue(50);
    expect(await readers.drain(2)).toMatchObject({ finished: true });
    readers.expectOnceAndInOrder();
    expect(await rowsOf(readers.name)).toHaveLength(2);
  });

  test('back again, before anything was read, restores the old ones', async () => {
    const readers = new Readers();
    await readers.enqueue(100);
    await readers.drain(1, 20);
    await setPaused(readers.name, true);
    await readers.drain(8);
    expect(await rowsOf(readers.name)).toHaveLength(8);
    await readers.drain(1);
    expect(await rowsOf(readers.name)).toMatchObject([{ from: 0, to: 65_536, old: false }]);
    await setPaused(readers.name, false);
    await readers.drain(1);
    readers.expectOnceAndInOrder();
  });

  test.each(inject('isFull') ? [0, 1, 2, 3] : [0, 1])(
    'at any time loses nothing, repeats nothing and keeps the order (seed %i)',
    async (seed) => {
      const random = randomFrom(seed);
      const upTo = (most: number) => 1 + Math.floor(random() * most);
      const readers = new Readers();
      const open: { commit: () => Promise<void> }[] = [];
      for (let step = 0; step < 12; step += 1) {
        if (random() < 0.5) await readers.enqueue(upTo(60));
        if (random() < 0.3) {
          // a transaction that commits some steps later; it has no keys, which others would wait for
          const client = await db.connect();
          await client.query('BEGIN');
          const ids = await enqueue(
            db,
            client,
            ...Array.from({ length: 5 }, () => ({ topic: readers.topic })),
          );
          readers.enqueued.push(...ids);
          open.push({ commit: async () => void (await client.query('COMMIT')) });
        }
        if (open.length > 0 && random() < 0.4) await open.shift()?.commit();
        await readers.drain(upTo(9), upTo(70), { batchSize: upTo(20) });
      }
      for (const { commit } of open) await commit();
      await readers.drain(upTo(9));
      readers.expectOnceAndInOrder();
    },
    120_000,
  );

  test('keeps the tries of a message that fails, whether its partition is split, ends or is restored', async () => {
    const readers = new Readers();
    const tries: number[] = [];
    readers.handle = (messages) => {
      const failing = messages.find(({ key }) => key === `${readers.name} 7`);
      if (failing === undefined) return;
      if (messages.length === 1) tries.push(failing.tries);
      throw new Error('not yet');
    };
    const retry = { maxAttempts: 100, baseMs: 60_000, maxMs: 60_000 };
    const drain = async (partitions: number) => {
      await readers.drain(partitions, 1000, { retry });
      await db.query(`SELECT ${db.quoted}.retry_now($1)`, [readers.name]);
    };
    await readers.enqueue(130);
    await drain(1);
    await setPaused(readers.name, true);
    await drain(8);
    await drain(1);
    await setPaused(readers.name, false);
    for (const partitions of [1, 4, 1, 6]) await drain(partitions);
    expect(tries).toEqual([1, 2, 3, 4, 5]);
    readers.handle = () => {};
    await readers.drain(2);
    readers.expectOnceAndInOrder();
  });

  test('waits until the readers have finished their batches', async () => {
    const readers = new Readers();
    await readers.enqueue(100);
    const gate = new Gate();
    onTestFinished(() => gate.open());
    readers.handle = async () => gate.pass();
    const old = await readers.start(2, { leaseMs: 3000 });
    await waitFor(() => old.partitions.length === 2, { what: 'the first reader' });
    const added = await readers.start(4, { leaseMs: 3000 });
    expect(added.partitions).toEqual([]);
    await delay(1500);
    expect(await rowsOf(readers.name)).toHaveLength(2);
    expect(readers.messages).toEqual([]);
    gate.open();
    await shares([old, added], 2, 2);
    await readers.everything();
    readers.expectOnceAndInOrder();
  });

  test('up and down with traffic: readers follow, and every message is read once and in order', async () => {
    const readers = new Readers();
    const stopProducing = readers.produce();
    let running = [await readers.start(1), await readers.start(1)];
    for (const partitions of [3, 5, 2, 8, 1, 4]) {
      const next = [await readers.start(partitions), await readers.start(partitions)];
      await Promise.all(running.map((each) => each.stop()));
      running = next;
      await waitFor(
        async () => (await rowsOf(readers.name)).filter(({ old }) => !old).length === partitions,
        { what: `${partitions} partitions` },
      );
    }
    await stopProducing();
    await readers.everything();
    readers.expectOnceAndInOrder();
  }, 120_000);

  test('keeps a reader that lost its lease from moving anything', async () => {
    const readers = new Readers();
    await readers.drain(1);
    const { rows } = await db.query<{ fence: string }>(
      `SELECT fence FROM ${db.quoted}.take_cursor($1, gen_random_uuid(), 'zombie', 1)`,
      [readers.name],
    );
    const { fence } = only(rows);
    await db.query(`SELECT ${db.quoted}.define_cursor($1, p_topics => $2, p_partitions => 2)`, [
      readers.name,
      [readers.topic],
    ]);
    await waitFor(
      async () => {
        const { rows: shared } = await db.query<{ share: number }>(
          `SELECT share FROM ${db.quoted}.join_cursor($1, gen_random_uuid(), 1)`,
          [readers.name],
        );
        return only(shared).share > 0;
      },
      { what: 'the end of its lease' },
    );
    expect(await rowsOf(readers.name)).toHaveLength(2);
    // no other reader has taken a partition yet
    const { rows: moved } = await db.query(
      `SELECT ${db.quoted}.move_cursor($1, $2, pg_current_snapshot(), NULL, NULL) AS moved,
              ${db.quoted}.holds_cursor($1, $2) AS held, (${db.quoted}.extend_cursor($1, $2)).held AS extended`,
      [readers.name, fence],
    );
    expect(moved).toEqual([{ moved: false, held: false, extended: false }]);
  });
});

describe('N16 a drain of a subscription with partitions', () => {
  test('reads all of them, within one limit for all', async () => {
    const readers = new Readers();
    await readers.enqueue(100);
    expect(await readers.drain(4, 30)).toMatchObject({
      processed: 30,
      finished: false,
      heldBy: null,
    });
    expect(await readers.drain(4)).toMatchObject({ processed: 70, finished: true, heldBy: null });
    expect(await readers.drain(4)).toMatchObject({ processed: 0, finished: true, heldBy: null });
    readers.expectOnceAndInOrder();
  });

  test('reads what is free, and names another reader', async () => {
    const readers = new Readers();
    await readers.drain(4);
    const { rows } = await db.query<{ fence: string }>(
      `SELECT fence FROM ${db.quoted}.take_cursor($1, gen_random_uuid(), 'another', 600000)`,
      [readers.name],
    );
    await readers.enqueue(200);
    const report = await readers.drain(4);
    expect(report).toMatchObject({ finished: false, heldBy: 'another' });
    expect(report.processed).toBeGreaterThan(50);
    expect(report.processed).toBeLessThan(200);
    await db.query(`SELECT ${db.quoted}.release_cursor($1, $2)`, [readers.name, only(rows).fence]);
    expect(await readers.drain(4)).toMatchObject({ finished: true, heldBy: null });
    readers.expectOnceAndInOrder();
  });

  test('says when the first failed message is due again, and reads the other partitions', async () => {
    const readers = new Readers();
    readers.handle = (messages) => {
      if (messages.some(({ key }) => key === `${readers.name} 1`)) throw new Error('not yet');
    };
    await readers.enqueue(130);
    const retry = { maxAttempts: 10, baseMs: 60_000, maxMs: 60_000 };
    const report = await readers.drain(4, 1000, { retry });
    expect(report).toMatchObject({ failed: 1, finished: true, heldBy: null });
    expect(report.retryInMs).toBeGreaterThan(1000);
    expect(report.succeeded).toBeGreaterThan(60);
    readers.handle = () => {};
    await db.query(`SELECT ${db.quoted}.retry_now($1)`, [readers.name]);
    await readers.drain(4);
    readers.expectOnceAndInOrder();
  });
});

describe('a cursor with partitions', () => {
  test('R4 has one line with the sum, and one for each partition', async () => {
    await db.query(`DELETE FROM ${db.quoted}.cursors`);
    const readers = new Readers();
    await readers.drain(3);
    await readers.enqueue(90);
    const { rows: whole } = await db.query(
      `SELECT behind::int, partitions, oldest_unread_at IS NOT NULL AS waits, reader FROM ${db.quoted}.cursor_status() WHERE name = $1`,
      [readers.name],
    );
    expect(whole).toEqual([{ behind: 90, partitions: 3, waits: true, reader: null }]);
    const { rows } = await db.query<{ partition: number; behind: number; is_old: boolean }>(
      `SELECT partition, behind::int, is_old FROM ${db.quoted}.cursor_partitions() WHERE name = $1`,
      [readers.name],
    );
    expect(rows.map(({ partition }) => partition)).toEqual([0, 1, 2]);
    expect(rows.reduce((sum, { behind }) => sum + behind, 0)).toBe(90);
    expect(rows.every(({ behind, is_old: isOld }) => behind > 0 && !isOld)).toBe(true);
  });

  test('R4 is listed with its partitions, and the doctor names those that nothing reads', async () => {
    await db.query(`DELETE FROM ${db.quoted}.cursors`);
    const readers = new Readers();
    await readers.drain(2);
    await expectWell(db, 'cursors_behind');
    await readers.enqueue(40);
    const listed = await cli(['cursors', 'list', '--partitions', '--json'], {
      environment: environmentOf(db),
    });
    expect(JSON.parse(listed.stdout)).toMatchObject([
      { name: readers.name, partition: 0, isOld: false, reader: null },
      { name: readers.name, partition: 1, isOld: false, reader: null },
    ]);
    const { found } = await look(db, 'cursors_behind');
    expect(found).toMatch(`partition 0 of ${readers.name} is `);
    expect(found).toMatch(`partition 1 of ${readers.name} is `);
    expect(found).toMatch('it has no reader');
    const whole = await cli(['cursors', '--json'], { environment: environmentOf(db) });
    expect(JSON.parse(whole.stdout)).toMatchObject([{ partitions: 2, behind: 40, reader: null }]);
  });

  test('R4 while their number changes, an unread message is counted once', async () => {
    const readers = new Readers();
    await readers.enqueue(100);
    await readers.drain(4, 31);
    await readers.drain(3, 1);
    await readers.enqueue(40);
    const { rows } = await db.query(
      `SELECT behind::int, partitions FROM ${db.quoted}.cursor_status() WHERE name = $1`,
      [readers.name],
    );
    expect(rows).toEqual([{ behind: 108, partitions: 3 }]);
    const [last] = readers.enqueued.slice(-1);
    const { rows: explained } = await db.query(
      `SELECT destination, reason FROM ${db.quoted}.explain($1) WHERE destination = $2`,
      [last, readers.name],
    );
    expect(explained).toEqual([{ destination: readers.name, reason: 'not_read' }]);
    await readers.drain(3);
    readers.expectOnceAndInOrder();
  });

  test('R4 is reported as stalled once, even if only one partition has stopped', async () => {
    const readers = new Readers();
    await readers.drain(3);
    await readers.enqueue(60);
    await db.query(
      `UPDATE ${db.quoted}.messages SET id = overlay(${db.quoted}.id_at(now() - interval '20 minutes')::text PLACING substr(id::text, 15) FROM 15)::uuid
        WHERE topic = $1`,
      [readers.topic],
    );
    const stalled = async () => {
      const { rows } = await db.query<{ is_read: boolean }>(
        `SELECT is_read FROM ${db.quoted}.stalled_cursors() WHERE name = $1`,
        [readers.name],
      );
      return rows;
    };
    expect(await stalled()).toEqual([]);
    await db.query(
      `UPDATE ${db.quoted}.cursors SET moved_at = now() - interval '1 hour' WHERE name = $1 AND hash_from > 40000`,
      [readers.name],
    );
    expect(await stalled()).toEqual([{ is_read: false }]);
    await db.query(
      `UPDATE ${db.quoted}.cursors SET moved_at = now() - interval '1 hour' WHERE name = $1`,
      [readers.name],
    );
    expect(await stalled()).toEqual([{ is_read: false }]);
    await readers.drain(3);
    expect(await stalled()).toEqual([]);
  });

  test('C9 holds back retention until its slowest partition has read a day', async () => {
    const readers = new Readers();
    await readers.enqueue(100);
    await readers.drain(4, 40);
    const behind = async () => {
      const { rows } = await db.query<{ name: string | null }>(
        `SELECT ${db.quoted}.cursor_behind(min_id, overlay(max_id::text PLACING 'ffff' FROM 33)::uuid) AS name
           FROM (SELECT (array_agg(id ORDER BY id))[1] AS min_id, (array_agg(id ORDER BY id DESC))[1] AS max_id
                   FROM ${db.quoted}.messages WHERE topic = $1) m`,
        [readers.topic],
      );
      return only(rows).name;
    };
    await db.query(`DELETE FROM ${db.quoted}.cursors WHERE name <> $1`, [readers.name]);
    expect(await behind()).toBe(readers.name);
    // all but one have read everything; the first drain may have read that one to its end
    await readers.enqueue(10);
    await db.query(`SELECT ${db.quoted}.take_cursor($1, gen_random_uuid(), 'another', 600000)`, [
      readers.name,
    ]);
    expect((await readers.drain(4)).finished).toBe(false);
    expect(await behind()).toBe(readers.name);
    await db.query(
      `UPDATE ${db.quoted}.holds SET holder = NULL, expires_at = '-infinity' WHERE name = 'cursor ' || $1`,
      [readers.name],
    );
    await readers.drain(4);
    expect(await behind()).toBe(null);
  });

  test('R4 is reset as a whole, also while their number changes', async () => {
    const readers = new Readers();
    await readers.enqueue(50);
    await readers.drain(4, 20);
    await readers.drain(3, 1);
    await db.query(`SELECT ${db.quoted}.reset_cursor($1, 'now')`, [readers.name]);
    expect(await rowsOf(readers.name)).toHaveLength(3);
    expect(await readers.drain(3)).toMatchObject({ processed: 0, finished: true });
    await db.query(`SELECT ${db.quoted}.reset_cursor($1, 'beginning')`, [readers.name]);
    expect(await readers.drain(3)).toMatchObject({ processed: 50, finished: true });
  });

  test.each([1, 0])(
    'R4 C8 is deleted: each unread message becomes unrouted once (%i changes)',
    async (changes) => {
      const readers = new Readers();
      await readers.drain(4);
      await readers.enqueue(100);
      await readers.drain(4, 37);
      if (changes > 0) await readers.drain(3, 1);
      const read = readers.ids;
      await db.query(`SELECT ${db.quoted}.delete_cursor($1, force => true)`, [readers.name]);
      await waitFor(
        async () => {
          await db.query(`SELECT ${db.quoted}.hand_over_cursors()`);
          return (
            (
              await db.query(`SELECT FROM ${db.quoted}.cursors WHERE name LIKE $1`, [
                `${readers.name}%`,
              ])
            ).rowCount === 0
          );
        },
        { what: 'the end of the remainders' },
      );
      const { rows } = await db.query<{ message_id: string }>(
        `SELECT u.message_id FROM ${db.quoted}.unrouted_messages u JOIN ${db.quoted}.messages m ON m.id = u.message_id WHERE m.topic = $1`,
        [readers.topic],
      );
      expect(rows.map(({ message_id: id }) => id).toSorted()).toEqual(
        readers.enqueued.filter((id) => !read.has(id)).toSorted(),
      );
    },
  );

  test('N4 its unread messages become deliveries when its destination changes the mode', async () => {
    const got: string[] = [];
    const topic = 'partitions.mode';
    const relayOf = (mode: 'deliver' | 'stream') =>
      createRelay({
        database: database(),
        destinations: {
          'mode-river': batchHandler(
            async (messages) =>
              collected(
                got,
                messages.map(({ id }) => id),
              ),
            mode === 'stream' ? { mode, from: 'beginning', partitions: 4 } : { mode },
          ),
        },
        routes: [{ topic, to: 'mode-river' }],
      });
    const messages = Array.from({ length: 100 }, (_, n) => ({ topic, key: `mode ${n % 10}` }));
    await relayOf('stream').drain();
    const first = await enqueue(db, db.pool, ...messages);
    await relayOf('stream').drain({ maxMessages: 30 });
    expect(got).toHaveLength(30);
    await relayOf('deliver').drain();
    const second = await enqueue(db, db.pool, ...messages);
    await waitFor(
      async () => {
        await relayOf('deliver').drain();
        return got.length >= 200 && (await rowsOf('mode-river')).length === 0;
      },
      { what: 'the rest' },
    );
    expect(got.toSorted()).toEqual([...first, ...second].toSorted());
  });

  test('N4 is repaired as a whole: nothing unread is skipped', async () => {
    const readers = new Readers();
    await readers.enqueue(60);
    await readers.drain(4, 25);
    await readers.drain(3, 1);
    await db.query(`UPDATE ${db.quoted}.cursors SET system_id = 1 WHERE name = $1`, [readers.name]);
    await expect(readers.drain(3)).rejects.toThrow(/it comes from another server/);
    const { rows } = await db.query<{ count: number }>(
      `SELECT cursors_repaired AS count FROM ${db.quoted}.repair_cursors()`,
    );
    expect(rows).toEqual([{ count: 1 }]);
    expect(await rowsOf(readers.name)).toHaveLength(3);
    await readers.drain(3);
    expect(readers.ids).toEqual(new Set(readers.enqueued));
  });

  test('N4 new topics apply to all partitions', async () => {
    const readers = new Readers();
    await readers.drain(3);
    const other = `other.${readers.name}`;
    const [id = ''] = await enqueue(db, db.pool, { topic: other });
    await readers.drain(3, 100, { topics: [readers.topic, other] });
    expect(readers.ids).toEqual(new Set([id]));
  });

  test('M2 of a destination that two applications share has one number: another one is refused', async () => {
    const relayOf = (application: string, partitions: number) =>
      createRelay({
        database: database(),
        application,
        destinations: {
          'shared-river': webhook({ url: 'https://example.com/', mode: 'stream', partitions }),
        },
        routes: [{ topic: 'partitions.applications', to: 'shared-river' }],
      });
    await relayOf('one', 2).drain();
    await relayOf('two', 2).drain();
    await expect(relayOf('two', 3).drain()).rejects.toThrow(/shared-river/);
    expect(await rowsOf('shared-river')).toHaveLength(2);
  });

  test('R3 more than 64 partitions are refused, and so are partitions of deliveries', async () => {
    const name = cursorName();
    await expect(collect(db, { name, partitions: 65 })).rejects.toThrow(/partitions.*64/);
    await expect(collect(db, { name, partitions: 0 })).rejects.toThrow(/partitions/);
    expect(() =>
      createRelay({
        destinations: { a: batchHandler(async () => {}, { partitions: 2 }) },
        routes: [{ topic: 'a', to: 'a' }],
      }),
    ).toThrow('has partitions 2, and its mode is "deliver"');
  });
});
