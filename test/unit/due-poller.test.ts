// The due poller: the fallback poll goes on after a destination was woken by something else.

import { expect, it, onTestFinished } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { Signal } from '../../src/relay/signal.js';
import { DuePoller } from '../../src/relay/wakeup/due-poller.js';

type Due = { id: number; ms: number; isEndpoint: boolean };

/** A poller of a database that has these deliveries. */
function pollerOf(due: readonly Due[]): DuePoller {
  const database = { schema: 'outbox', query: () => Promise.resolve(due) } as unknown as Database;
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
  const first = poller.wait(7, signal);
  await new Promise((resolve) => setTimeout(resolve, 30));
  signal.raise();
  await first;
  signal.reset();
  const second = poller.wait(7, signal);
  await new Promise((resolve) => setTimeout(resolve, 30));
  due.push({ id: 7, ms: 0, isEndpoint: false });
  await second;
  expect(signal.raised).toBe(true);
});
