// A guard checks every way to a destination: single calls, batches and stream mode. What it refuses is never sent.

import * as v from 'valibot';
import { describe, expect, it } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { paymentGuard } from '../../src/destinations/payment-guard/payment-guard.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import type { GuardFunction } from '../../src/core/guard.js';
import { delivered, reject, retry } from '../../src/core/outcome.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  deadLettersOf,
  numbered,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilEnded,
  untilPlaces,
} from '../support/relay.js';

const db = testDatabase();

const numberOf = (message: ClaimedMessage) => (message.payload as { n: number }).n;

/** Refuses even numbers. */
const noEven: GuardFunction = (message) =>
  numberOf(message) % 2 === 0 ? { code: 'even', message: 'not this one' } : undefined;

const soon = { retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 } };

describe('a guard', () => {
  it('P8 P11 what it refuses is dead at once, with its code, and the destination is not called', async () => {
    const received: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        guarded: handler((message) => void received.push(numberOf(message)), { guard: noEven }),
      },
    });
    const ids = await send(db, numbered('guarded', 4));
    await untilPlaces(db, 'guarded', { waiting: 0, leased: 0, delivered: 2, dead: 2 });
    expect(new Set(received)).toEqual(new Set([1, 3]));
    const [letter] = await deadLettersOf(db, 'guarded');
    expect(letter).toMatchObject({
      message_id: ids[1],
      reason: 'rejected',
      error_code: 'guard_refused',
      remote_code: 'even',
      error_message: 'not this one',
      tries: 1,
    });
    expect(relay.of('delivery_failed')).toHaveLength(2);
  });

  it('P8 refused messages of a batch are removed and the others are sent, each with its own outcome', async () => {
    const calls: number[][] = [];
    await startRelay(db, {
      destinations: {
        batches: batchHandler(
          (messages) => {
            calls.push(messages.map(numberOf));
            return Promise.resolve(
              messages.map((message) =>
                numberOf(message) === 3
                  ? reject({ code: 'three' })
                  : delivered(`r${numberOf(message)}`),
              ),
            );
          },
          { batchSize: 10, guard: async (message) => noEven(message) },
        ),
      },
    });
    const ids = await send(db, numbered('batches', 6));
    await untilPlaces(db, 'batches', { waiting: 0, leased: 0, delivered: 2, dead: 4 });
    expect(new Set(calls.flat())).toEqual(new Set([1, 3, 5]));
    const codes = await Promise.all(
      ids.map(async (id) => only(await attemptsOf(db, id, 'batches'))),
    );
    expect(codes.map((attempt) => attempt.error_code ?? attempt.reference)).toEqual([
      'r1',
      'guard_refused',
      'three',
      'guard_refused',
      'r5',
      'guard_refused',
    ]);
  });

  it('P8 what it refuses of a batch stays refused when the rest of the call fails', async () => {
    let calls = 0;
    await startRelay(db, {
      destinations: {
        halves: batchHandler(
          () => {
            calls += 1;
            if (calls === 1) throw new Error('broken');
            return calls === 2 ? Promise.resolve([]) : Promise.resolve(undefined);
          },
          { batchSize: 10, guard: noEven, ...soon },
        ),
      },
    });
    const [first = '', second = ''] = await send(db, numbered('halves', 2));
    await untilPlaces(db, 'halves', { waiting: 0, leased: 0, delivered: 1, dead: 1 });
    expect(await attemptsOf(db, second, 'halves')).toMatchObject([{ error_code: 'guard_refused' }]);
    expect(await attemptsOf(db, first, 'halves')).toMatchObject([
      { error_code: 'thrown' },
      { error_code: 'outcomes_missing' },
      { state: 'dispatched' },
    ]);
  });

  it.each<[string, GuardFunction]>([
    [
      'throws',
      () => {
        throw new Error('the guard is broken');
      },
    ],
    ['does not answer', () => new Promise<undefined>(() => {})],
  ])(
    'P8 a guard that %s sends nothing: it is asked again, until the tries are used up',
    async (what, guard) => {
      const name = what.replaceAll(' ', '-');
      let called = 0;
      await startRelay(db, {
        destinations: {
          [name]: handler(() => void (called += 1), { guard, timeoutMs: 400, ...soon }),
        },
      });
      const id = await sendOne(db, { topic: name });
      await untilPlaces(db, name, { dead: 1 });
      expect(called).toBe(0);
      const failed = { error_code: 'guard_failed' };
      expect(await attemptsOf(db, id, name)).toMatchObject([failed, failed, failed]);
    },
  );

  it('P8 an answer after the relay had to stop sends nothing', async () => {
    let called = 0;
    let asked = 0;
    let answer: (() => void) | undefined;
    const relay = await startRelay(db, {
      destinations: {
        stopping: handler(() => void (called += 1), {
          guard: () =>
            new Promise<undefined>((resolve) => {
              asked += 1;
              answer = () => resolve(undefined);
            }),
        }),
      },
      relay: { stopDeadlineMs: 50 },
    });
    await sendOne(db, { topic: 'stopping' });
    await untilPlaces(db, 'stopping', { leased: 1 });
    await untilCount(
      {
        get length() {
          return asked;
        },
      } as unknown[],
      1,
      'questions',
    );
    await relay.stop();
    answer?.();
    await new Promise(setImmediate);
    expect(called).toBe(0);
  });

  it('P8 a payment is judged by its text, not as a double', async () => {
    const received: string[] = [];
    await startRelay(db, {
      destinations: {
        rail: handler((message) => void received.push(message.id), {
          guard: paymentGuard({ rails: { sepa: { destination: 'iban', currencies: ['EUR'] } } }),
        }),
      },
    });
    const payment = (amount: string, destination = 'DE89370400440532013000') => ({
      topic: 'rail',
      payloadText: `{"amount": ${amount}, "currency": "EUR", "rail": "sepa", "destination": "${destination}"}`,
    });
    const ids = await send(db, [
      payment('0.07'),
      payment('0.07000000000000000001'),
      payment('1e400'),
      payment('1e2'),
      payment('1', 'DE89370400440532013001'),
    ]);
    await untilPlaces(db, 'rail', { waiting: 0, leased: 0, delivered: 2, dead: 3 });
    // PostgreSQL writes 1e2 out as 100
    expect(new Set(received)).toEqual(new Set([ids[0], ids[3]]));
    const letters = await deadLettersOf(db, 'rail');
    expect(letters.map((letter) => letter['remote_code'] as string).toSorted()).toEqual([
      'amount_invalid',
      'amount_invalid',
      'destination_invalid',
    ]);
  });

  it('P8 a schema is a guard for the payload', async () => {
    const received: number[] = [];
    await startRelay(db, {
      destinations: {
        schema: handler((message) => void received.push(numberOf(message)), {
          guard: v.object({ n: v.pipe(v.number(), v.maxValue(1)) }),
        }),
      },
    });
    await send(db, numbered('schema', 2));
    await untilPlaces(db, 'schema', { delivered: 1, dead: 1 });
    expect(received).toEqual([1]);
    expect(only(await deadLettersOf(db, 'schema'))).toMatchObject({
      remote_code: 'schema_invalid',
    });
  });
});

describe('in stream mode', () => {
  it.each([
    ['one by one', 'single'],
    ['in batches', 'batch'],
  ])(
    'P8 %s, refused messages are parked, and the others are sent once and in order',
    async (_what, kind) => {
      const received: number[] = [];
      const name = `stream-${kind}`;
      const settings = { mode: 'stream', from: 'beginning', guard: noEven } as const;
      const relay = await startRelay(db, {
        destinations: {
          [name]:
            kind === 'batch'
              ? batchHandler((messages) => {
                  received.push(...messages.map(numberOf));
                  return Promise.resolve();
                }, settings)
              : handler((message) => void received.push(numberOf(message)), settings),
        },
      });
      await send(db, numbered(name, 5));
      await untilCount(received, 3, 'messages');
      expect(received).toEqual([1, 3, 5]);
      expect(relay.of('stream_parked').map(({ code }) => code)).toEqual([
        'guard_refused',
        'guard_refused',
      ]);
    },
  );
});

describe('classify', () => {
  it('P10 the codes of the configuration decide, also about timeouts and thrown errors', async () => {
    await startRelay(db, {
      destinations: {
        classes: handler(
          async (message) => {
            const n = numberOf(message);
            if (n === 1) return retry({ code: 'http_status', remoteCode: '422' });
            if (n === 2) throw Object.assign(new Error('422'), { code: 'EBROKEN' });
            if (n === 3) return new Promise<undefined>(() => {});
            return reject({ code: 'unknown' });
          },
          {
            timeoutMs: 30,
            classify: { '422': 'reject', EBROKEN: 'reject', timeout: 'reject', default: 'retry' },
            retry: { maxAttempts: 2, baseMs: 1, maxMs: 1 },
          },
        ),
      },
    });
    const ids = await send(db, numbered('classes', 4));
    await untilEnded(db, 'classes');
    const letters = await deadLettersOf(db, 'classes');
    expect(letters).toMatchObject([
      { message_id: ids[0], reason: 'rejected', error_code: 'http_status', tries: 1 },
      { message_id: ids[1], reason: 'rejected', remote_code: 'EBROKEN', tries: 1 },
      { message_id: ids[2], reason: 'rejected', error_code: 'timeout', tries: 1 },
      { message_id: ids[3], reason: 'exhausted', error_code: 'unknown', tries: 2 },
    ]);
  });

  it('P10 a code that means pause pauses, in stream mode too', async () => {
    let refused = true;
    const received: number[] = [];
    const handle = (message: ClaimedMessage) => {
      if (refused) throw Object.assign(new Error('no'), { code: 'EACCES' });
      received.push(numberOf(message));
    };
    const settings = { classify: { EACCES: 'pause' } } as const;
    const relay = await startRelay(db, {
      destinations: {
        locked: handler(handle, settings),
        stream: batchHandler((messages) => Promise.resolve(messages.forEach(handle)), {
          ...settings,
          mode: 'stream',
          from: 'beginning',
        }),
      },
    });
    await send(db, [...numbered('locked', 1), ...numbered('stream', 2)]);
    await relay.event('destination_paused', ({ destination }) => destination === 'locked');
    await relay.event('destination_paused', ({ destination }) => destination === 'stream');
    refused = false;
    for (const name of ['locked', 'stream'])
      await db.query(`SELECT ${db.quoted}.set_paused($1, false)`, [name]);
    await untilCount(received, 3, 'messages');
    expect(relay.of('stream_parked')).toEqual([]);
  });
});
