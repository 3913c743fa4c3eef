// A relay can be drained any number of times, and started again after a stop; calls at the wrong time are refused.

import { expect, it, onTestFinished } from 'vitest';

import { createRelay, createShardedRelay, defineShards, handler } from '../../src/index.js';
import type { Config } from '../../src/index.js';
import { testDatabase } from '../support/postgres.js';
import { send } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

function configOf(name: string, got: unknown[]): Config & { database: { url: string } } {
  return {
    database: { url: db.url, schema: db.schema },
    destinations: { [name]: handler(({ payload }) => void got.push(payload)) },
    routes: [{ topic: name, to: name }],
  };
}

it('C7 drain() needs no limits, and may be called again', async () => {
  const got: unknown[] = [];
  const relay = createRelay(configOf('again', got));
  expect(await relay.drain()).toMatchObject({ processed: 0, finished: true });
  await send(db, [{ topic: 'again', payload: 1 }]);
  expect(await relay.drain()).toMatchObject({ processed: 1, finished: true });
  await send(db, [{ topic: 'again', payload: 2 }]);
  expect(await relay.drain({ maxMessages: 10 })).toMatchObject({ processed: 1, finished: true });
  expect(got).toEqual([1, 2]);
  await expect(relay.drain({ maxMs: 0 })).rejects.toThrow(
    /^drain\.maxMs is 0: give a whole number/,
  );
  await expect(relay.drain({ maxSeconds: 1 } as object)).rejects.toThrow(
    /^drain\.maxSeconds is not an option: use maxMs, maxMessages, maintain/,
  );
});

it('C7 start() after stop() and after drain() works, and catchUp() waits for what is due', async () => {
  const got: unknown[] = [];
  const relay = createRelay(configOf('restarted', got));
  onTestFinished(() => relay.stop());
  await relay.stop();
  for (const payload of [1, 2]) {
    await relay.start();
    await send(db, [{ topic: 'restarted', payload }]);
    await relay.catchUp();
    await waitFor(() => got.length === payload, { what: 'the delivery' });
    await relay.stop();
  }
  expect(await relay.drain()).toMatchObject({ processed: 0, finished: true });
});

it('C7 a running relay is not started or drained again', async () => {
  const relay = createRelay(configOf('busy', []));
  onTestFinished(() => relay.stop());
  await relay.start();
  const words = /was called while this relay runs: stop it first/;
  await expect(relay.start()).rejects.toThrow(words);
  await expect(relay.drain()).rejects.toMatchObject({ code: 'relay_busy' });
  await expect(relay.catchUp({ maxMs: 10_000 })).resolves.toMatchObject({ finished: true });
});

it('C7 the same holds for relays of shards', async () => {
  const got: unknown[] = [];
  const { database: _database, ...config } = configOf('sharded', got);
  const shards = defineShards({ shards: { one: { url: db.url, schema: db.schema } } });
  const relay = createShardedRelay({ ...config, shards });
  onTestFinished(() => relay.stop());
  await relay.drain();
  await send(db, [{ topic: 'sharded', payload: 1 }]);
  expect(await relay.drain()).toMatchObject({ processed: 1, unrouted: 0 });
  await relay.start();
  await expect(relay.drain()).rejects.toMatchObject({ code: 'relay_busy' });
  await send(db, [{ topic: 'sharded', payload: 2 }]);
  await waitFor(() => got.length === 2, { what: 'the delivery' });
  await relay.stop();
});

const stoppedEarly = {
  status: 'rejected',
  reason: expect.objectContaining({ message: 'the relay was stopped while it started' }) as Error,
};

async function relays(): Promise<number> {
  const { rows } = await db.query(`SELECT FROM ${db.quoted}.relays`);
  return rows.length;
}

it('C7 a stop() right after start() stops that run, however often it ran before', async () => {
  const relay = createRelay(configOf('stopped', []));
  onTestFinished(() => relay.stop());
  for (const before of ['nothing', 'a drain', 'a start', 'a stop']) {
    if (before === 'a drain') await relay.drain();
    if (before === 'a start') {
      await relay.start();
      await relay.stop();
    }
    const [started] = await Promise.allSettled([relay.start(), relay.stop()]);
    expect(started, before).toMatchObject(stoppedEarly);
    expect(await relays(), before).toBe(0);
  }
  const [first] = await Promise.allSettled([relay.start(), relay.stop(), relay.start()]);
  expect(first).toMatchObject(stoppedEarly);
  expect(await relays()).toBe(1);
  await relay.stop();
  expect(await relays()).toBe(0);
});

it('C7 the same holds for relays of shards after stop()', async () => {
  const { database: _database, ...config } = configOf('stopped-shards', []);
  const shards = defineShards({ shards: { one: { url: db.url, schema: db.schema } } });
  const relay = createShardedRelay({ ...config, shards });
  onTestFinished(() => relay.stop());
  for (const before of ['nothing', 'a drain', 'a start']) {
    if (before === 'a drain') await relay.drain();
    if (before === 'a start') {
      await relay.start();
      await relay.stop();
    }
    const [started] = await Promise.allSettled([relay.start(), relay.stop()]);
    expect(started, before).toMatchObject(stoppedEarly);
    expect(await relays(), before).toBe(0);
  }
  await relay.start();
  await Promise.all([relay.stop(), relay.start()]);
  expect(await relays()).toBe(1);
});

it('C7 catchUp() before start() is refused', async () => {
  const relay = createRelay(configOf('early', []));
  await expect(relay.catchUp()).rejects.toMatchObject({
    code: 'relay_not_started',
    message: 'catchUp() was called before start(): start the relay first, or call drain()',
  });
});
