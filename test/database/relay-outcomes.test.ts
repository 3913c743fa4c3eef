// The meaning of a destination's outcome. No outcome, however odd, affects other messages.

import { describe, expect, it } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { delivered, reject, retry } from '../../src/core/outcome.js';
import type { Outcome } from '../../src/core/outcome.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  deadLettersOf,
  numbered,
  send,
  sendOne,
  startRelay,
  untilEnded,
  untilPlaces,
} from '../support/relay.js';

const db = testDatabase();

const soon = { retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 } };

describe('an outcome', () => {
  it('P4 with a reference is stored with the attempt', async () => {
    await startRelay(db, {
      destinations: { receipt: handler(() => delivered('receipt-7')) },
    });
    const id = await sendOne(db, { topic: 'receipt' });
    await untilEnded(db, 'receipt');
    expect(only(await attemptsOf(db, id, 'receipt'))).toMatchObject({ reference: 'receipt-7' });
  });

  it('M11 P11 a rejected message becomes a dead letter at once, with its code', async () => {
    const relay = await startRelay(db, {
      destinations: {
        strict: handler(
          () => reject({ code: 'amount_refused', remoteCode: 'E17', message: 'too much' }),
          soon,
        ),
      },
    });
    const id = await sendOne(db, { topic: 'strict', payload: { amount: 9 } });
    await untilPlaces(db, 'strict', { dead: 1, waiting: 0, leased: 0 });
    expect(only(await deadLettersOf(db, 'strict'))).toMatchObject({
      message_id: id,
      reason: 'rejected',
      error_code: 'amount_refused',
      remote_code: 'E17',
      error_message: 'too much',
      tries: 1,
      payload: { amount: 9 },
    });
    expect(await attemptsOf(db, id, 'strict')).toMatchObject([{ state: 'failed', tries: 1 }]);
    expect(only(relay.of('delivery_failed'))).toMatchObject({ messageId: id, tries: 1 });
  });

  it('P11 M10 a throw is a failed try: it is recorded and retried until the tries are used up', async () => {
    const tries: number[] = [];
    await startRelay(db, {
      destinations: {
        thrower: handler((message) => {
          tries.push(message.tries);
          throw Object.assign(new Error(`no luck ${message.tries}`), { code: 'EFLAKY' });
        }, soon),
      },
    });
    const id = await sendOne(db, { topic: 'thrower' });
    await untilPlaces(db, 'thrower', { dead: 1 });
    expect(tries).toEqual([1, 2, 3]);
    const failed = { error_code: 'thrown', remote_code: 'EFLAKY' };
    expect(await attemptsOf(db, id, 'thrower')).toMatchObject([
      { state: 'retryable', claim_no: 1, ...failed, error_message: 'no luck 1' },
      { state: 'retryable', claim_no: 2, ...failed, error_message: 'no luck 2' },
      { state: 'failed', claim_no: 3, ...failed, error_message: 'no luck 3' },
    ]);
    expect(only(await deadLettersOf(db, 'thrower'))).toMatchObject({ reason: 'exhausted' });
  });

  it('P11 a rejected promise is a failed try like a throw', async () => {
    let calls = 0;
    await startRelay(db, {
      destinations: {
        promising: handler(async () => {
          calls += 1;
          if (calls === 1) await Promise.reject(new Error('not yet'));
        }, soon),
      },
    });
    const id = await sendOne(db, { topic: 'promising' });
    await untilEnded(db, 'promising');
    expect(await attemptsOf(db, id, 'promising')).toMatchObject([
      { state: 'retryable', error_message: 'not yet' },
      { state: 'dispatched', tries: 2 },
    ]);
  });

  it('M11 a thenable, as some database libraries return it, is awaited', async () => {
    let ran = 0;
    // a query builder: it runs only when it is awaited
    class LazyQuery {
      // oxlint-disable-next-line unicorn/no-thenable -- what the test is about
      then(resolve: (value: undefined) => void, refuse: (error: Error) => void): void {
        ran += 1;
        if (ran === 1) refuse(new Error('not yet'));
        else resolve(undefined);
      }
    }
    await startRelay(db, {
      destinations: {
        thenable: handler(() => new LazyQuery() as unknown as Promise<undefined>, soon),
      },
    });
    const id = await sendOne(db, { topic: 'thenable' });
    await untilEnded(db, 'thenable');
    expect(await attemptsOf(db, id, 'thenable')).toMatchObject([
      { state: 'retryable', error_message: 'not yet' },
      { state: 'dispatched', tries: 2 },
    ]);
  });

  it('P11 any text of an error is cleaned and stored, and settling does not fail', async () => {
    const nasty = `NUL \u0000 half \uD800 and long ${'x'.repeat(5000)}`;
    const relay = await startRelay(db, {
      destinations: {
        nasty: handler(
          () => reject({ code: 'c\u0000de', remoteCode: '\uDC00', message: nasty }),
          soon,
        ),
      },
    });
    await send(db, numbered('nasty', 3));
    await untilPlaces(db, 'nasty', { dead: 3 });
    const [letter] = await deadLettersOf(db, 'nasty');
    expect(letter).toMatchObject({ error_code: 'c\uFFFDde', remote_code: '\uFFFD' });
    expect((letter as { error_message: string }).error_message).toMatch(
      /^NUL \uFFFD half \uFFFD and long x+…$/,
    );
    expect(relay.of('trouble')).toEqual([]);
  });

  it.each<[string, () => unknown]>([
    ['a delay that is not a number', () => retry({ code: 'odd', afterMs: Number.NaN })],
    ['an infinite delay', () => retry({ code: 'odd', afterMs: Number.POSITIVE_INFINITY })],
    ['a code that is a number', () => reject({ code: 404 as unknown as string })],
    ['a message that is an object', () => retry({ code: 'odd', message: {} as unknown as string })],
    ['an unknown kind', () => ({ kind: 'finished' })],
  ])('P11 with %s is a failed try and affects no other message', async (_what, odd) => {
    const name = `odd-${Math.random().toString(36).slice(2, 8)}`;
    const relay = await startRelay(db, {
      destinations: {
        [name]: batchHandler(
          (messages) =>
            Promise.resolve(
              messages.map((message) =>
                (message.payload as { n: number }).n === 2 ? (odd() as Outcome) : delivered(),
              ),
            ),
          { retry: { maxAttempts: 1 } },
        ),
      },
    });
    await send(db, numbered(name, 3));
    await untilPlaces(db, name, { delivered: 2, dead: 1, waiting: 0, leased: 0 });
    expect(relay.of('trouble')).toEqual([]);
    expect(relay.of('lease_lost')).toEqual([]);
  });

  it('a delivery whose message is missing becomes a dead letter, and its neighbours are delivered', async () => {
    const received: string[] = [];
    const definition = {
      destinations: { holes: handler((message) => void received.push(message.id), soon) },
    };
    // the routes must exist before the first message is sent
    const first = await startRelay(db, definition);
    await first.stop();
    const ids = await send(db, numbered('holes', 3));
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [ids[1]]);
    await startRelay(db, definition);
    await untilPlaces(db, 'holes', { waiting: 0, leased: 0, dead: 1, delivered: 2 });
    expect(new Set(received)).toEqual(new Set([ids[0], ids[2]]));
    expect(only(await deadLettersOf(db, 'holes'))).toMatchObject({
      message_id: ids[1],
      error_code: 'message_missing',
      reason: 'rejected',
      payload: null,
    });
  });
});
