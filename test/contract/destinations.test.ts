// The contract of every destination, tested for each kind through a real relay: what arrives, what a failure means, and
// that a call which is given up really ends.

import { describe, expect, it } from 'vitest';

import type { DestinationSettings } from '../../src/destinations/destination.js';
import { packageUrl, runNode } from '../support/cli.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  numbered,
  waitLimitMs,
  send,
  sendOne,
  startRelay,
  untilPlaces,
} from '../support/relay.js';
import type { TestRelay } from '../support/relay.js';
import { Partner, subjects } from '../support/relay-partner.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

describe.each(subjects)('$kind', ({ kind, refusedAs, make, source }) => {
  async function start(
    settings: DestinationSettings = {},
    stopDeadlineMs = 20_000,
  ): Promise<{ name: string; partner: Partner; relay: TestRelay }> {
    const name = `${kind}-${Math.random().toString(36).slice(2, 8)}`;
    const partner = new Partner();
    const relay = await startRelay(db, {
      destinations: {
        [name]: await make(partner, { retry: { delaysMs: [1, 1, 1] }, ...settings }),
      },
      relay: { stopDeadlineMs },
    });
    return { name, partner, relay };
  }

  async function until(condition: () => boolean, what: string): Promise<void> {
    await waitFor(condition, { what, timeoutMs: waitLimitMs });
  }

  it('M11 an accepted message is delivered once', async () => {
    const { name, partner } = await start();
    const ids = await send(db, numbered(name, 25));
    await untilPlaces(db, name, { delivered: 25, waiting: 0, leased: 0 });
    expect(partner.arrived.toSorted()).toEqual(ids.toSorted());
  });

  it('M11 P9 a slow response within the timeout counts', async () => {
    const { name, partner } = await start({ timeoutMs: 20_000 });
    partner.behaviour = 'hold';
    const id = await sendOne(db, { topic: name });
    await until(() => partner.holding === 1, 'the delivery');
    await untilPlaces(db, name, { leased: 1, delivered: 0 });
    partner.letGo();
    await untilPlaces(db, name, { delivered: 1, waiting: 0, leased: 0 });
    expect(await attemptsOf(db, id, name)).toMatchObject([{ state: 'dispatched', tries: 1 }]);
    expect(partner.cut).toBe(0);
  });

  it('P9 a call that takes too long is aborted: the other side notices, and the message is retried', async () => {
    const { name, partner } = await start({ timeoutMs: 150 });
    partner.behaviour = 'hold';
    const id = await sendOne(db, { topic: name });
    await until(() => partner.holding === 1, 'the delivery');
    partner.behaviour = 'accept';
    await until(() => partner.cut === 1, 'the call to be given up');
    await untilPlaces(db, name, { delivered: 1, waiting: 0, leased: 0 });
    expect(await attemptsOf(db, id, name)).toMatchObject([
      { state: 'retryable', tries: 1, error_code: 'timeout' },
      { state: 'dispatched', tries: 2 },
    ]);
    expect(partner.arrived).toEqual([id, id]);
  });

  it('P11 a failure is recorded with its code and retried', async () => {
    const { name, partner } = await start({ retry: { delaysMs: [1, 3_600_000] } });
    partner.behaviour = 'fail';
    const id = await sendOne(db, { topic: name });
    await until(() => partner.arrived.length === 2, 'two tries');
    await untilPlaces(db, name, { waiting: 1, leased: 0 });
    expect(await attemptsOf(db, id, name)).toMatchObject([
      { state: 'retryable', tries: 1, error_code: refusedAs },
      { state: 'retryable', tries: 2, error_code: refusedAs },
    ]);
  });

  it('P11 repeated failures end as a dead letter', async () => {
    const { name, partner } = await start({ retry: { delaysMs: [1] } });
    partner.behaviour = 'fail';
    await sendOne(db, { topic: name });
    await untilPlaces(db, name, { dead: 1, waiting: 0, leased: 0 });
    expect(partner.arrived).toHaveLength(2);
  });

  it('M12 a stop waits for the responses to calls in flight', async () => {
    const { name, partner, relay } = await start();
    partner.behaviour = 'hold';
    const id = await sendOne(db, { topic: name });
    await until(() => partner.holding === 1, 'the delivery');
    const stopped = relay.stop();
    partner.letGo();
    await stopped;
    expect(partner.cut).toBe(0);
    expect(await attemptsOf(db, id, name)).toMatchObject([{ state: 'dispatched', tries: 1 }]);
  });

  it('M12 a stop that reaches its deadline aborts calls in flight, and the other side notices', async () => {
    const { name, partner, relay } = await start({ retry: { delaysMs: [3_600_000] } }, 400);
    partner.behaviour = 'hold';
    const id = await sendOne(db, { topic: name });
    await until(() => partner.holding === 1, 'the delivery');
    await relay.stop();
    await until(() => partner.cut === 1, 'the call to be given up');
    expect(only(await attemptsOf(db, id, name))).toMatchObject({
      state: 'retryable',
      tries: 1,
      error_code: 'stopped',
    });
    await untilPlaces(db, name, { waiting: 1, leased: 0 });
  });

  it('M12 nothing keeps the process alive after the close', async () => {
    const script = `
      import { createServer } from 'node:http';
      import { batchHandler, handler, webhook } from ${JSON.stringify(packageUrl)};
      const server = createServer((request, response) => { request.resume(); response.end('ok'); });
      await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
      server.unref();
      const url = 'http://127.0.0.1:' + server.address().port + '/';
      void [batchHandler, handler, webhook, url];
      const destination = ${source};
      const message = { id: 'm', topic: 't', payloadText: '{}', headersText: null };
      const context = { signal: new AbortController().signal };
      await destination.open?.();
      const outcome = destination.deliverBatch
        ? (await destination.deliverBatch([message], context))[0]
        : await destination.deliver(message, context);
      await destination.close?.();
      console.log(outcome.kind);
    `;
    const child = runNode(['--input-type=module', '-e', script]);
    expect(await child.ended(10_000)).toEqual({ code: 0, stdout: 'delivered\n', stderr: '' });
  });
});
