// Readers of the log that are killed between the end of a batch and the move of the cursor, or while idle: the next
// reader continues at the cursor, no message is lost or parked, and only messages in flight come twice. The same for
// processes that drain the log once, and for readers that share the partitions of a cursor while their number changes.

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { afterAll, beforeAll, expect, test } from 'vitest';

import type { SubscriptionDrainReport } from '../../src/consumer/drain-subscription.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { Child } from './crash/child-process.js';

const db = testDatabase();
const outbox = createOutbox();
const batchSize = 20;
let directory: string;

beforeAll(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-stream-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

test('N4 readers killed between the end of a batch and the move of the cursor lose nothing', async () => {
  const file = path.join(directory, 'received');
  const log = path.join(directory, 'log');
  const received = () => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []);
  const enqueued: string[] = [];
  const produce = async (count: number) => {
    const messages = Array.from({ length: count }, (_, n) => ({ topic: 'a.b', payload: { n } }));
    const rows = await outbox.enqueueMany(await client(), messages, { autonomous: true });
    enqueued.push(...rows.map(({ id }) => id));
  };
  const connection = db.connect();
  const client = async () => connection;

  const deaths = 4;
  for (let death = 0; death < deaths; death += 1) {
    await produce(150);
    const reader = new Child(
      'stream.mjs',
      { databaseUrl: db.url, file, batchesUntilDeath: 2 + death },
      log,
      () => {},
    );
    await produce(50);
    expect(await reader.ended).toMatchObject({ signal: 'SIGKILL' });
  }
  const last = new Child(
    'stream.mjs',
    { databaseUrl: db.url, file, batchesUntilDeath: 0 },
    log,
    () => {},
  );
  await waitFor(() => new Set(received()).size === enqueued.length, {
    what: 'everything',
    timeoutMs: 60_000,
  });
  last.signal('SIGTERM');
  expect(await last.ended).toMatchObject({ code: 0 });

  expect(new Set(received())).toEqual(new Set(enqueued));
  // the batch that was just handed over, and one whose move had not arrived
  const repeated = received().length - enqueued.length;
  expect(repeated).toBeGreaterThan(0);
  expect(repeated).toBeLessThanOrEqual(deaths * 2 * batchSize);
}, 120_000);

test('N4 a message after ten idle readers were killed is processed normally', async () => {
  const file = path.join(directory, 'idle');
  const log = path.join(directory, 'idle-log');
  const received = () => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []);
  const connection = await db.connect();
  const produce = async () => {
    const message = { topic: 'a.b', payload: {} };
    return (await outbox.enqueue(connection, message, { autonomous: true })).id;
  };
  const start = () =>
    new Child(
      'stream.mjs',
      { name: 'idle', databaseUrl: db.url, file, batchesUntilDeath: 0 },
      log,
      () => {},
    );
  const fence = async () => {
    const { rows } = await db.query<{ fence: string }>(
      `SELECT fence FROM ${db.quoted}.cursors WHERE name = 'idle'`,
    );
    return Number(rows[0]?.fence ?? 0);
  };

  const before = await produce();
  for (let death = 1; death <= 10; death += 1) {
    const reader = start();
    await waitFor(async () => (await fence()) === death, { what: `reader ${death}` });
    await waitFor(() => received().includes(before), { what: 'the first message' });
    await waitFor(
      async () => {
        const { rows } = await db.query<{ behind: string }>(
          `SELECT behind FROM ${db.quoted}.cursor_status() WHERE name = 'idle'`,
        );
        return only(rows).behind === '0';
      },
      { what: 'the move past it' },
    );
    await reader.kill();
  }
  const after = await produce();
  const last = start();
  await waitFor(() => received().includes(after), { what: 'the message' });
  last.signal('SIGTERM');
  expect(await last.ended).toMatchObject({ code: 0 });
  const { rowCount } = await db.query(`SELECT FROM ${db.quoted}.dead_letters`);
  expect(rowCount).toBe(0);
}, 120_000);

/** Lines of an id, a key and a sequence: every message came, and the first time in the order of its key. */
function expectAllInOrder(lines: readonly string[], enqueued: readonly string[]): void {
  const first = new Map<string, string[]>();
  const seen = new Set<string>();
  for (const [id = '', key = '', sequence = ''] of lines.map((line) => line.split(' '))) {
    if (!seen.has(id)) first.set(key, [...(first.get(key) ?? []), sequence]);
    seen.add(id);
  }
  expect(seen).toEqual(new Set(enqueued));
  for (const sequences of first.values())
    expect(sequences).toEqual(sequences.map((_, index) => String(index + 1)));
}

test('N4 readers that share partitions are killed while their number changes: nothing is lost, and keys stay in order', async () => {
  const name = 'shared';
  const file = path.join(directory, name);
  const log = path.join(directory, 'shared-log');
  const received = () => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []);
  const connection = await db.connect();
  const enqueued: string[] = [];
  const produce = async (count: number) => {
    const messages = Array.from({ length: count }, (_, n) => ({
      topic: name,
      key: `shared-${n % 23}`,
      payload: {},
    }));
    const rows = await outbox.enqueueMany(connection, messages, { autonomous: true });
    enqueued.push(...rows.map(({ id }) => id));
  };
  const start = (partitions: number, batchesUntilDeath: number) =>
    new Child(
      'stream.mjs',
      { name, databaseUrl: db.url, file, batchesUntilDeath, partitions, topics: [name] },
      log,
      () => {},
    );

  for (const partitions of [4, 6, 3, 1, 4]) {
    await produce(150);
    const readers = [start(partitions, 5), start(partitions, 3)];
    await produce(150);
    for (const reader of readers) expect(await reader.ended).toMatchObject({ signal: 'SIGKILL' });
  }
  const last = [start(4, 0), start(4, 0)];
  await waitFor(() => new Set(received()).size === enqueued.length, {
    what: 'everything',
    timeoutMs: 60_000,
  });
  for (const reader of last) {
    reader.signal('SIGTERM');
    expect(await reader.ended).toMatchObject({ code: 0 });
  }
  expectAllInOrder(received(), enqueued);
  const { rows } = await db.query<{ partitions: number; unended: number }>(
    `SELECT count(*)::int AS partitions, count(until)::int AS unended FROM ${db.quoted}.cursors WHERE name = $1`,
    [name],
  );
  expect(rows).toEqual([{ partitions: 4, unended: 0 }]);
  const { rowCount } = await db.query(
    `SELECT FROM ${db.quoted}.find_dead_letters(destination => $1)`,
    [name],
  );
  expect(rowCount).toBe(0);
}, 240_000);

test('N16 N4 after a drain was killed the next one goes on, loses nothing and keeps the order of each key', async () => {
  const file = path.join(directory, 'drained');
  const log = path.join(directory, 'drained-log');
  const received = () => readFileSync(file, 'utf8').trim().split('\n');
  const connection = await db.connect();
  const enqueued: string[] = [];
  const produce = async () => {
    const messages = Array.from({ length: 200 }, (_, n) => ({
      topic: 'drained',
      key: `key-${n % 7}`,
      payload: {},
    }));
    const rows = await outbox.enqueueMany(connection, messages, { autonomous: true });
    enqueued.push(...rows.map(({ id }) => id));
  };
  const drain = async (batchesUntilDeath = 0) => {
    let report: SubscriptionDrainReport | undefined;
    const child = new Child<SubscriptionDrainReport>(
      'stream-drain.mjs',
      { databaseUrl: db.url, file, batchesUntilDeath },
      log,
      (said) => (report = said),
    );
    const ending = await child.ended;
    return { ...ending, report };
  };

  for (const batchesUntilDeath of [3, 2, 4]) {
    await produce();
    // the one before was killed: its lease must end first
    await waitFor(
      async () => {
        const { signal, report } = await drain(batchesUntilDeath);
        if (signal === 'SIGKILL') return true;
        expect(report).toMatchObject({ processed: 0, finished: false });
        expect(report?.heldBy).toMatch(/:\d+$/);
        return false;
      },
      { what: 'a drain that reads', timeoutMs: 30_000 },
    );
  }
  const last = await waitFor(
    async () => {
      const { code, report } = await drain();
      expect(code).toBe(0);
      return report?.heldBy === null ? report : undefined;
    },
    { what: 'the last drain', timeoutMs: 30_000 },
  );
  expect(last).toMatchObject({ failed: 0, finished: true });
  // the lease was given back: nothing waits for it
  expect(await drain()).toMatchObject({ report: { processed: 0, finished: true, heldBy: null } });

  expectAllInOrder(received(), enqueued);
  const { rowCount } = await db.query(
    `SELECT FROM ${db.quoted}.find_dead_letters(destination => 'drained')`,
  );
  expect(rowCount).toBe(0);
}, 120_000);
