// Concurrency of a relay: limits over all destinations and for each, timeouts that really end a call, and
// back-pressure, which leaves what cannot be sent soon in the queue.

import { describe, expect, it, onTestFinished } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  Gate,
  Meter,
  numbered,
  waitLimitMs,
  send,
  sendOne,
  startRelay,
  untilPlaces,
} from '../support/relay.js';
import type { RelaySettings, TestRelay } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

/** A gate that opens at the end even if the test fails, so that no call hangs for ever. */
function gateway(): Gate {
  const gate = new Gate();
  onTestFinished(() => gate.open());
  return gate;
}

async function until(condition: () => boolean, what: string): Promise<void> {
  await waitFor(condition, { what, timeoutMs: waitLimitMs });
}

/** Starts a relay on a full queue. */
async function startOnBacklog(
  settings: RelaySettings,
  backlog: Record<string, number>,
  payload?: unknown,
): Promise<TestRelay> {
  const definer = await startRelay(db, settings);
  await definer.stop();
  for (const [topic, count] of Object.entries(backlog)) {
    await send(db, numbered(topic, count, payload === undefined ? {} : { payload }));
  }
  return startRelay(db, settings);
}

describe('bounds', () => {
  it('P9 no more deliveries are in flight over all destinations than the relay allows', async () => {
    const meter = new Meter();
    const gate = gateway();
    const destination = () => handler(() => meter.during(() => gate.pass()), { concurrency: 10 });
    await startOnBacklog(
      {
        destinations: { left: destination(), right: destination() },
        relay: { concurrency: 3 },
      },
      { left: 15, right: 15 },
    );
    await until(() => meter.now === 3, 'three deliveries in flight');
    for (let ended = 1; ended <= 10; ended += 1) {
      gate.letOne();
      await until(() => meter.total === 3 + ended, `delivery ${3 + ended}`);
    }
    gate.open();
    await untilPlaces(db, 'left', { delivered: 15, leased: 0 });
    await untilPlaces(db, 'right', { delivered: 15, leased: 0 });
    expect(meter.most).toBe(3);
  });

  it('P9 a greedy destination leaves the others their part', async () => {
    const gate = gateway();
    const greedy = new Meter();
    let delivered = 0;
    await startOnBacklog(
      {
        destinations: {
          greedy: handler(() => greedy.during(() => gate.pass()), { concurrency: 1000 }),
          quick: handler(() => void (delivered += 1)),
        },
        relay: { concurrency: 12 },
      },
      { greedy: 40 },
    );
    // all but the other's part
    await until(() => greedy.now === 9, 'nine deliveries in flight');
    await send(db, numbered('quick', 20));
    await untilPlaces(db, 'quick', { delivered: 20, leased: 0 });
    expect(greedy.now).toBe(9);
  });

  it('P9 no more deliveries are in flight at one destination than it allows', async () => {
    const meters = { narrow: new Meter(), wide: new Meter() };
    const gate = gateway();
    await startOnBacklog(
      {
        destinations: {
          narrow: handler(() => meters.narrow.during(() => gate.pass()), { concurrency: 2 }),
          wide: handler(() => meters.wide.during(() => gate.pass()), { concurrency: 7 }),
        },
      },
      { narrow: 20, wide: 20 },
    );
    await until(() => meters.narrow.now === 2 && meters.wide.now === 7, 'both to be full');
    gate.open();
    await untilPlaces(db, 'narrow', { delivered: 20, leased: 0 });
    await untilPlaces(db, 'wide', { delivered: 20, leased: 0 });
    expect([meters.narrow.most, meters.wide.most]).toEqual([2, 7]);
  });

  it('P9 a batch counts as one delivery', async () => {
    const meter = new Meter();
    const gate = gateway();
    await startOnBacklog(
      {
        destinations: {
          crates: batchHandler(() => meter.during(() => gate.pass()), {
            concurrency: 2,
            batchSize: 10,
          }),
        },
      },
      { crates: 50 },
    );
    await until(() => meter.now === 2, 'two batches in flight');
    gate.open();
    await untilPlaces(db, 'crates', { delivered: 50, leased: 0 });
    expect(meter.most).toBe(2);
    expect(meter.total).toBeLessThanOrEqual(10);
  });
});

describe('timeouts', () => {
  it('P9 M12 a delivery that hangs is aborted at its timeout and retried', async () => {
    const signals: AbortSignal[] = [];
    const gate = gateway();
    await startRelay(db, {
      destinations: {
        hanging: handler(
          async (message, { signal }) => {
            if (message.tries > 1) return;
            signals.push(signal);
            await new Promise<void>((_resolve, refuse) => {
              signal.addEventListener('abort', () => refuse(signal.reason as Error));
            });
            await gate.pass();
          },
          { timeoutMs: 100, retry: { delaysMs: [1] } },
        ),
      },
    });
    const id = await sendOne(db, { topic: 'hanging' });
    await untilPlaces(db, 'hanging', { delivered: 1, waiting: 0, leased: 0 });
    expect(signals.map((signal) => signal.aborted)).toEqual([true]);
    expect(String(signals[0]?.reason)).toContain('100 ms');
    const [first, second] = await attemptsOf(db, id, 'hanging');
    expect(first).toMatchObject({ state: 'retryable', error_code: 'timeout', tries: 1 });
    expect(first?.latency_ms).toBeGreaterThanOrEqual(100);
    expect(second).toMatchObject({ state: 'dispatched', tries: 2 });
  });

  it('P9 a handler that reads the signal after the timeout finds it aborted', async () => {
    const late: boolean[] = [];
    const gate = gateway();
    await startRelay(db, {
      destinations: {
        unaware: handler(
          async (message, context) => {
            if (message.tries > 1) return;
            await gate.pass();
            late.push(context.signal.aborted);
          },
          { timeoutMs: 50, retry: { delaysMs: [1] } },
        ),
      },
    });
    await sendOne(db, { topic: 'unaware' });
    await untilPlaces(db, 'unaware', { delivered: 1, waiting: 0, leased: 0 });
    gate.open();
    await until(() => late.length === 1, 'the late return');
    expect(late).toEqual([true]);
  });

  it('P9 an abort listener of a handler is called at the timeout, or at once if it is added later', async () => {
    const told: string[] = [];
    const gate = gateway();
    await startRelay(db, {
      destinations: {
        informed: handler(
          async (message, context) => {
            if (message.tries > 1) return;
            context.onAbort?.((reason) => told.push(`early: ${reason.message}`));
            await gate.pass();
            context.onAbort?.((reason) => told.push(`late: ${reason.message}`));
          },
          { timeoutMs: 50, retry: { delaysMs: [1] } },
        ),
      },
    });
    await sendOne(db, { topic: 'informed' });
    await until(() => told.length === 1, 'the abort');
    gate.open();
    await until(() => told.length === 2, 'the late return');
    expect(told).toEqual(['early: no answer within 50 ms', 'late: no answer within 50 ms']);
  });

  it('P9 an outcome after the timeout changes nothing', async () => {
    const gate = gateway();
    let returned = 0;
    await startRelay(db, {
      destinations: {
        tardy: handler(
          async (message) => {
            if (message.tries > 1) return;
            await gate.pass();
            returned += 1;
          },
          { timeoutMs: 50, retry: { delaysMs: [1] } },
        ),
      },
    });
    const id = await sendOne(db, { topic: 'tardy' });
    await untilPlaces(db, 'tardy', { delivered: 1, waiting: 0, leased: 0 });
    gate.open();
    await until(() => returned === 1, 'the late return');
    expect((await attemptsOf(db, id, 'tardy')).map(({ state }) => state)).toEqual([
      'retryable',
      'dispatched',
    ]);
  });

  it('P9 a hanging destination does not slow another', async () => {
    const gate = gateway();
    const stuck = new Meter();
    await startOnBacklog(
      {
        destinations: {
          stuck: handler(() => stuck.during(() => gate.pass()), { concurrency: 5 }),
          brisk: handler(() => undefined),
        },
      },
      { stuck: 200 },
    );
    await until(() => stuck.now === 5, 'the other to hang');
    for (let round = 1; round <= 20; round += 1) {
      await send(db, numbered('brisk', 10));
      await untilPlaces(db, 'brisk', { delivered: round * 10 });
    }
    expect(stuck.total).toBe(5);
    const { rows } = await db.query<{ worst: number }>(
      `SELECT max(extract(epoch FROM a.ended_at - m.created_at) * 1000)::float8 AS worst
         FROM ${db.quoted}.attempts a JOIN ${db.quoted}.messages m ON m.id = a.message_id WHERE m.topic = 'brisk'`,
    );
    expect(rows[0]?.worst).toBeLessThan(2000);
    gate.open();
    await untilPlaces(db, 'stuck', { delivered: 200, leased: 0 });
  });

  it('P9 calls that obey their abort are not reported as hung, also if all time out at once', async () => {
    const relay = await startOnBacklog(
      {
        destinations: {
          heeding: handler(
            ({ tries }, context) =>
              tries > 1
                ? undefined
                : new Promise<void>((resolve) => {
                    context.signal.addEventListener('abort', () => resolve());
                  }),
            { concurrency: 2, timeoutMs: 50, retry: { delaysMs: [1] } },
          ),
        },
      },
      { heeding: 4 },
    );
    await untilPlaces(db, 'heeding', { delivered: 4, waiting: 0, leased: 0 });
    expect(relay.events.filter(({ name }) => name === 'destination_hung')).toEqual([]);
  });

  it('P9 calls that ignore their abort stay bounded, are reported, and make room when they return', async () => {
    const meter = new Meter();
    const gate = gateway();
    const relay = await startOnBacklog(
      {
        destinations: {
          deafened: handler(() => meter.during(() => gate.pass()), {
            concurrency: 2,
            timeoutMs: 50,
            retry: { delaysMs: [1, 1, 1, 1, 1] },
          }),
        },
        relay: { leaseMs: 1000, fallbackPollMs: 100, reapMs: 100 },
      },
      { deafened: 12 },
    );
    const hung = await relay.event('destination_hung');
    expect(hung).toMatchObject({ destination: 'deafened', overdue: 2 });
    await until(() => meter.now === 4, 'twice as many calls as allowed');
    // there are no more of them, and other relays can claim what cannot be sent from here
    await untilPlaces(db, 'deafened', { waiting: 12, leased: 0 });
    expect(meter.total).toBe(4);
    gate.open();
    await untilPlaces(db, 'deafened', { delivered: 12, waiting: 0, leased: 0 });
    expect(meter.most).toBe(4);
  });
});

/**
 * How many claimed deliveries have not ended. The leases in the database would count more: deliveries that have ended,
 * and whose settle is not committed yet.
 */
const heldBy = (relay: TestRelay, meter: Meter): number =>
  relay.of('claimed').reduce((sum, { count }) => sum + count, 0) - (meter.total - meter.now);

describe('back-pressure', () => {
  it('a slow destination holds no more than its window; the rest stays in the queue for other relays', async () => {
    const meter = new Meter();
    const gate = gateway();
    const relay = await startOnBacklog(
      {
        destinations: { slow: handler(() => meter.during(() => gate.pass()), { concurrency: 2 }) },
      },
      { slow: 300 },
    );
    await until(() => meter.now === 2, 'deliveries in flight');
    let most = 0;
    for (let ended = 1; ended <= 60; ended += 1) {
      // the next half of the window is there before the dispatch queue runs empty; if it ran empty, the window would grow
      await until(() => heldBy(relay, meter) >= 10, 'half of the window is claimed');
      gate.letOne();
      await until(() => meter.total === 2 + ended, `delivery ${2 + ended}`);
      most = Math.max(most, heldBy(relay, meter));
    }
    // the smallest window is 20
    expect(most).toBeGreaterThan(10);
    expect(most).toBeLessThanOrEqual(20);
    gate.open();
    await untilPlaces(db, 'slow', { delivered: 300, leased: 0 });
  });

  it('large payloads are limited by bytes, not by their number', async () => {
    const meter = new Meter();
    const gate = gateway();
    const batchBytes = 40_000;
    const payloadBytes = 30_000;
    const relay = await startOnBacklog(
      {
        destinations: { heavy: handler(() => meter.during(() => gate.pass()), { concurrency: 1 }) },
        relay: { batchBytes },
      },
      { heavy: 40 },
      'x'.repeat(payloadBytes),
    );
    await until(() => meter.now === 1, 'a delivery in flight');
    let most = 0;
    for (let ended = 1; ended <= 15; ended += 1) {
      gate.letOne();
      await until(() => meter.total === 1 + ended, `delivery ${1 + ended}`);
      most = Math.max(most, heldBy(relay, meter));
    }
    expect(Math.max(...relay.of('claimed').map(({ count }) => count))).toBeLessThanOrEqual(
      Math.floor(batchBytes / payloadBytes),
    );
    // below three batches of bytes another claim is made; by number 11 would be held
    expect(most).toBeLessThanOrEqual((3 * batchBytes) / payloadBytes + 1);
    gate.open();
    await untilPlaces(db, 'heavy', { delivered: 40, leased: 0 });
  });

  it('a message larger than the limit is delivered, alone in its claim', async () => {
    const relay = await startOnBacklog(
      { destinations: { huge: handler(() => undefined) }, relay: { batchBytes: 1024 } },
      { huge: 3 },
      'x'.repeat(50_000),
    );
    await untilPlaces(db, 'huge', { delivered: 3, waiting: 0, leased: 0 });
    expect(relay.of('claimed').map(({ count }) => count)).toEqual([1, 1, 1]);
  });
});
