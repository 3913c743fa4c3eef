// The due poller: the fallback poll goes on after a destination was woken by something else, and ends with a stop.

import { expect, it, onTestFinished } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { Signal } from '../../src/relay/signal.js';
import { DuePoller } from '../../src/relay/wakeup/due-poller.js';

type Due = { id: number; ms: number; isEndpoint: boolean };

/** A poller of a database that has these deliveries. */
function pollerOf(
  due: readonly Due[],
  wait = (): Promise<unknown> => Promise.resolve(),
): DuePoller {
  const query = async (): Promise<readonly Due[]> => {
    await wait();
    return due;
  };
  const database = { schema: 'outbox', query } as unknown as Database;
  const poller = new DuePoller({
    database,
    fallbackPollMs: 10,
    maySilence: true,
    isListening: () => true,
    onDueEndpoints: () => undefined,
    emit: () => {},
  });
  onTestFinished(() => poller.stop());
  return poller;
}

it('wakes an idle destination at the fallback poll, also after it was woken from outside', async () => {
  const due: Due[] = [];
  const poller = pollerOf(due);
  const signal = new Signal();
  const first = poller.wait({ destinationId: 7, isEndpoint: false }, signal);
  await new Promise((resolve) => setTimeout(resolve, 30));
  signal.raise();
  await first;
  signal.reset();
  const second = poller.wait({ destinationId: 7, isEndpoint: false }, signal);
  await new Promise((resolve) => setTimeout(resolve, 30));
  due.push({ id: 7, ms: 0, isEndpoint: false });
  await second;
  expect(signal.raised).toBe(true);
});

it('does not rest for long after a poll that had to wait', { timeout: 30_000 }, async () => {
  const due: Due[] = [];
  let slowMs = 300;
  const poller = pollerOf(due, () => new Promise((resolve) => setTimeout(resolve, slowMs)));
  const signal = new Signal();
  const woken = poller.wait({ destinationId: 7, isEndpoint: false }, signal);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  slowMs = 0;
  const startedMs = performance.now();
  due.push({ id: 7, ms: 0, isEndpoint: false });
  await woken;
  // without a limit it would rest for ten seconds
  expect(performance.now() - startedMs).toBeLessThan(8000);
});

it('asks and reports nothing after a stop, whose connections are closed', async () => {
  const asked: string[] = [];
  const troubles: unknown[] = [];
  const failing: (() => void)[] = [];
  const query = (what: string): Promise<never> => {
    asked.push(what);
    return new Promise((_resolve, reject) => {
      failing.push(() => reject(new Error('Cannot use a pool after calling end on the pool')));
    });
  };
  const poller = new DuePoller({
    database: { schema: 'outbox', query } as unknown as Database,
    fallbackPollMs: 10,
    maySilence: true,
    isListening: () => true,
    onDueEndpoints: () => () => {},
    emit: (event) => void troubles.push(event),
  });
  const turn = () => new Promise((resolve) => setTimeout(resolve, 30));
  poller.look();
  await turn();
  expect(asked).toHaveLength(1);
  poller.stop();
  failing[0]?.();
  await turn();
  expect(troubles).toEqual([]);

  const late = new DuePoller({
    database: { schema: 'outbox', query } as unknown as Database,
    fallbackPollMs: 10,
    maySilence: true,
    isListening: () => true,
    onDueEndpoints: () => () => {},
    emit: () => {},
  });
  late.look();
  late.stop();
  await turn();
  expect(asked).toHaveLength(1);
});
