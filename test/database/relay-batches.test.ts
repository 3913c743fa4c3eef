// Batches: handlers, claims and settles of many messages at once.

import { describe, expect, it, onTestFinished } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { delivered, reject, retry } from '../../src/core/outcome.js';
import type { Outcome } from '../../src/core/outcome.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  numbered,
  send,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const soon = { retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 } };

describe('batches', () => {
  it('M11 a batch handler answers for each message, and each gets its own outcome', async () => {
    await startRelay(db, {
      destinations: {
        mixed: batchHandler(
          (messages) =>
            Promise.resolve(
              messages.map((message): Outcome => {
                const { n } = message.payload as { n: number };
                if (n === 2) return reject({ code: 'refused' });
                if (n === 3 && message.tries === 1) return retry({ code: 'again' });
                return delivered(`receipt-${n}`);
              }),
            ),
          { ...soon, batchSize: 10 },
        ),
      },
    });
    const ids = await send(db, numbered('mixed', 4));
    await untilPlaces(db, 'mixed', { waiting: 0, leased: 0, delivered: 3, dead: 1 });
    const states = await Promise.all(
      ids.map(async (id) =>
        (await attemptsOf(db, id, 'mixed')).map(({ state, reference }) => [state, reference]),
      ),
    );
    expect(states).toEqual([
      [['dispatched', 'receipt-1']],
      [['failed', null]],
      [
        ['retryable', null],
        ['dispatched', 'receipt-3'],
      ],
      [['dispatched', 'receipt-4']],
    ]);
  });

  it('M11 no answer from a batch handler means that all were delivered', async () => {
    const sizes: number[] = [];
    await startRelay(db, {
      destinations: {
        silent: batchHandler(
          (messages) => {
            sizes.push(messages.length);
            return Promise.resolve();
          },
          { batchSize: 4 },
        ),
      },
    });
    await send(db, numbered('silent', 10));
    await untilPlaces(db, 'silent', { waiting: 0, leased: 0, delivered: 10 });
    expect(Math.max(...sizes)).toBeLessThanOrEqual(4);
  });

  it('M11 a finished call makes room for the next full one, however many others are in flight', async () => {
    const sizes: number[] = [];
    const ends: (() => void)[] = [];
    onTestFinished(() => ends.forEach((end) => end()));
    await startRelay(db, {
      destinations: {
        slow: batchHandler(
          (messages) => {
            sizes.push(messages.length);
            return new Promise<void>((resolve) => ends.push(resolve));
          },
          { batchSize: 10, concurrency: 6 },
        ),
      },
    });
    await send(db, numbered('slow', 200));
    await untilCount(sizes, 6, 'calls');
    ends[0]?.();
    await untilCount(sizes, 7, 'calls');
    expect(sizes).toEqual([10, 10, 10, 10, 10, 10, 10]);
  });

  it.each<[string, (count: number) => readonly Outcome[]]>([
    ['too few', (count) => Array.from({ length: count - 1 }, () => delivered())],
    ['too many', (count) => Array.from({ length: count + 1 }, () => delivered())],
    ['no', () => []],
  ])(
    'P11 a batch handler that returns %s outcomes has delivered nothing: all are retried',
    async (_what, wrong) => {
      const name = `miscounted-${Math.random().toString(36).slice(2, 8)}`;
      let calls = 0;
      await startRelay(db, {
        destinations: {
          [name]: batchHandler((messages) => {
            calls += 1;
            return Promise.resolve(
              calls === 1 ? wrong(messages.length) : messages.map(() => delivered()),
            );
          }, soon),
        },
      });
      const ids = await send(db, numbered(name, 3));
      await untilPlaces(db, name, { waiting: 0, leased: 0, delivered: 3 });
      for (const id of ids) {
        expect(await attemptsOf(db, id, name)).toMatchObject([
          { state: 'retryable', error_code: 'outcomes_missing' },
          { state: 'dispatched', tries: 2 },
        ]);
      }
    },
  );

  it('P11 a missing outcome of a batch is a failed try for that message, and the relay continues', async () => {
    await startRelay(db, {
      destinations: {
        holed: batchHandler(
          (messages) =>
            Promise.resolve(
              messages.map((message) =>
                (message.payload as { n: number }).n === 2 && message.tries === 1
                  ? (undefined as unknown as Outcome)
                  : delivered(),
              ),
            ),
          soon,
        ),
      },
    });
    const ids = await send(db, numbered('holed', 3));
    await untilPlaces(db, 'holed', { waiting: 0, leased: 0, delivered: 3 });
    expect((await attemptsOf(db, ids[1] ?? '', 'holed')).map(({ state }) => state)).toEqual([
      'retryable',
      'dispatched',
    ]);
  });
});

describe('many', () => {
  it('C6 100 messages cost one claim and one settle', async () => {
    const definition = {
      destinations: { hundred: handler(() => undefined, { concurrency: 100 }) },
    };
    const definer = await startRelay(db, definition);
    await definer.stop();
    await send(db, numbered('hundred', 100));
    const relay = await startRelay(db, definition);
    await untilPlaces(db, 'hundred', { waiting: 0, leased: 0, delivered: 100 });
    expect(relay.of('claimed').map(({ count }) => count)).toEqual([100]);
    // the database has it before the relay gets the response
    await waitFor(() => relay.of('settled').length > 0, { what: 'the settle' });
    expect(relay.of('settled').map(({ counts }) => counts.delivered)).toEqual([100]);
  });

  it('W4 1,500 messages are claimed in few batches and settled in few calls', async () => {
    const received: string[] = [];
    const definition = {
      destinations: { many: handler((message) => void received.push(message.id)) },
    };
    const first = await startRelay(db, definition);
    await first.stop();
    const ids = await send(db, numbered('many', 1500));
    const relay = await startRelay(db, definition);
    await untilPlaces(db, 'many', { waiting: 0, leased: 0, delivered: 1500 });
    expect(received.toSorted()).toEqual(ids.toSorted());
    // the window doubles from 20 to 500: 20, 40, 80, … and then full batches
    expect(relay.of('claimed').length).toBeLessThanOrEqual(12);
    expect(relay.of('settled').length).toBeLessThanOrEqual(30);
  });

  it('W4 a large batch for an immediate handler is delivered with one try each', async () => {
    const definition = {
      destinations: { deep: handler(() => undefined, { concurrency: 10_000 }) },
      relay: { batchSize: 10_000, concurrency: 10_000 },
    };
    const first = await startRelay(db, definition);
    await first.stop();
    await send(db, numbered('deep', 10_000));
    const relay = await startRelay(db, definition);
    await untilPlaces(db, 'deep', { waiting: 0, leased: 0, delivered: 10_000 });
    expect(relay.of('delivery_failed')).toEqual([]);
    expect(relay.of('trouble')).toEqual([]);
  });
});
