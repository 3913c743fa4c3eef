// A message's way through the relay, from the producer's transaction to its record: what a destination is
// given, and what each of its answers means.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

import { describe, expect, it, onTestFinished } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook.js';
import type { ClaimedMessage } from '../../src/model/claimed-message.js';
import { delivered, reject, release, retry } from '../../src/model/outcome.js';
import type { Outcome } from '../../src/model/outcome.js';
import { only } from '../support/only.js';
import { misplaced } from '../support/outbox.js';
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

const soon = { retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 } };

describe('what a destination is given', () => {
  it('M11 a message of a committed transaction reaches the handler with all that it was sent with', async () => {
    const received: ClaimedMessage[] = [];
    await startRelay(db, {
      destinations: { given: handler((message) => void received.push(message)) },
    });
    const id = await sendOne(db, {
      topic: 'given',
      payload: { user: 42, name: 'Zoë' },
      namespace: 'shop',
      tenantId: 'acme',
      key: 'user/42',
      dedupeKey: 'acme/42',
      aggregateType: 'user',
      aggregateId: '42',
      headers: { trace: 'abc' },
    });
    await untilEnded(db, 'given');
    const message = only(received);
    expect(message).toMatchObject({
      id,
      topic: 'given',
      tries: 1,
      claimNo: 1,
      namespace: 'shop',
      tenantId: 'acme',
      key: 'user/42',
      dedupeKey: 'acme/42',
      aggregateType: 'user',
      aggregateId: '42',
      headers: { trace: 'abc' },
      payload: { user: 42, name: 'Zoë' },
    });
    expect(Date.now() - message.createdAt.getTime()).toBeLessThan(60_000);
    expect(await attemptsOf(db, id, 'given')).toMatchObject([
      { state: 'dispatched', claim_no: 1, tries: 1, error_code: null },
    ]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('M11 M1 a message of a transaction that rolled back is never delivered', async () => {
    const received: unknown[] = [];
    await startRelay(db, {
      destinations: { undone: handler((message) => void received.push(message.payload)) },
    });
    await db
      .inTransaction(async (client) => {
        await client.query(
          `SELECT ${db.quoted}.enqueue(topic => 'undone', payload => '"never"'::jsonb)`,
        );
        throw new Error('the application changed its mind');
      })
      .catch(() => undefined);
    await sendOne(db, { topic: 'undone', payload: 'kept' });
    await untilEnded(db, 'undone');
    expect(received).toEqual(['kept']);
  });

  it('M2 the payload is parsed when a handler asks for it, once, and never before', async () => {
    const received: ClaimedMessage[] = [];
    await startRelay(db, {
      destinations: { lazy: handler((message) => void received.push(message)) },
    });
    await sendOne(db, { topic: 'lazy', payload: { deep: [1, 2, 3] } });
    await untilEnded(db, 'lazy');
    const message = only(received);
    expect(message.payloadText).toBe('{"deep": [1, 2, 3]}');
    expect(message.payload).toBe(message.payload);
  });

  it('M2 a webhook receives the payload byte for byte as the database prints it', async () => {
    const bodies: string[] = [];
    const server = createServer((request, response) => {
      void text(request).then((body) => {
        bodies.push(body);
        response.writeHead(204).end();
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    await startRelay(db, {
      destinations: { exact: webhook({ url: `http://127.0.0.1:${port}/hook` }) },
    });
    // numbers beyond double precision, trailing zeros and characters outside of Latin 1
    const payload =
      '{"amount":12345678901234567890.10,"tiny":0.1234567890123456789,"text":"Zoë 🚚"}';
    await db.query(`SELECT ${db.quoted}.enqueue(topic => 'exact', payload => $1::text::jsonb)`, [
      payload,
    ]);
    await untilEnded(db, 'exact');
    const { rows } = await db.query<{ printed: string }>(
      'SELECT $1::text::jsonb::text AS printed',
      [payload],
    );
    expect(bodies).toEqual([only(rows).printed]);
    expect(bodies[0]).toContain('12345678901234567890.10');
  });
});

describe('what an answer means', () => {
  it('P4 a reference that the destination gives is kept with the attempt', async () => {
    await startRelay(db, {
      destinations: { receipt: handler(() => delivered('receipt-7')) },
    });
    const id = await sendOne(db, { topic: 'receipt' });
    await untilEnded(db, 'receipt');
    expect(only(await attemptsOf(db, id, 'receipt'))).toMatchObject({ reference: 'receipt-7' });
  });

  it('M11 P11 a rejected message goes straight to the dead letters with its code', async () => {
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

  it('P11 M10 a throw is a failed try: it is recorded and tried again until the tries are used up', async () => {
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

  it('M11 an answer that is only thenable, as some database libraries give it, is waited for', async () => {
    let ran = 0;
    // a query builder: it runs when it is awaited, and not before
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

  it('a retry comes after the time that the destination asks for', async () => {
    const asked = 400;
    await startRelay(db, {
      destinations: {
        later: handler(
          (message) => (message.tries === 1 ? retry({ code: 'busy', afterMs: asked }) : undefined),
          { retry: { baseMs: 3_600_000, maxMs: 3_600_000 } },
        ),
      },
    });
    const id = await sendOne(db, { topic: 'later' });
    await untilPlaces(db, 'later', { delivered: 1 });
    const [first, second] = await attemptsOf(db, id, 'later');
    expect(first).toMatchObject({ state: 'retryable', error_code: 'busy' });
    const pausedMs = (second?.claimed_at.getTime() ?? 0) - (first?.ended_at.getTime() ?? 0);
    expect(pausedMs).toBeGreaterThanOrEqual(asked - 1);
  });

  it('W3 an explicit list of n delays means one first try and n retries, then a dead letter', async () => {
    const delaysMs = [60, 120, 180];
    let calls = 0;
    await startRelay(db, {
      destinations: {
        listed: handler(
          () => {
            calls += 1;
            return retry({ code: 'down', message: `try ${calls}` });
          },
          { retry: { delaysMs } },
        ),
      },
    });
    const id = await sendOne(db, { topic: 'listed' });
    await untilPlaces(db, 'listed', { dead: 1 });
    const attempts = await attemptsOf(db, id, 'listed');
    expect(attempts.map(({ state, error_message }) => `${state} ${error_message}`)).toEqual([
      'retryable try 1',
      'retryable try 2',
      'retryable try 3',
      'failed try 4',
    ]);
    const pausesMs = attempts
      .slice(1)
      .map((attempt, n) => attempt.claimed_at.getTime() - (attempts[n]?.ended_at.getTime() ?? 0));
    pausesMs.forEach((ms, n) => expect(ms).toBeGreaterThanOrEqual((delaysMs[n] ?? 0) - 1));
  });

  it('W3 M10 an exponential delay is between half and all of base * 2^(tries-1)', async () => {
    const baseMs = 80;
    await startRelay(db, {
      destinations: {
        doubling: handler(() => retry({ code: 'down' }), {
          retry: { maxAttempts: 3, baseMs, maxMs: 10_000 },
        }),
      },
    });
    const id = await sendOne(db, { topic: 'doubling' });
    await untilPlaces(db, 'doubling', { dead: 1 });
    const attempts = await attemptsOf(db, id, 'doubling');
    const pausesMs = attempts
      .slice(1)
      .map((attempt, n) => attempt.claimed_at.getTime() - (attempts[n]?.ended_at.getTime() ?? 0));
    expect(pausesMs).toHaveLength(2);
    expect(pausesMs[0]).toBeGreaterThanOrEqual(baseMs / 2 - 1);
    expect(pausesMs[1]).toBeGreaterThanOrEqual(baseMs - 1);
  });

  it('M6 a released message goes back, and no try is spent', async () => {
    let calls = 0;
    await startRelay(db, {
      destinations: {
        hesitant: handler(() => {
          calls += 1;
          return calls < 3 ? release() : undefined;
        }, soon),
      },
    });
    const id = await sendOne(db, { topic: 'hesitant' });
    await untilEnded(db, 'hesitant');
    expect(await attemptsOf(db, id, 'hesitant')).toMatchObject([
      { state: 'released', claim_no: 1, tries: 0 },
      { state: 'released', claim_no: 2, tries: 0 },
      { state: 'dispatched', claim_no: 3, tries: 1 },
    ]);
  });

  it('P11 whatever text an error carries, it is stored cleaned and settling does not fail', async () => {
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
    ['a wait that is no number', () => retry({ code: 'odd', afterMs: Number.NaN })],
    ['an endless wait', () => retry({ code: 'odd', afterMs: Number.POSITIVE_INFINITY })],
    ['a code that is a number', () => reject({ code: 404 as unknown as string })],
    ['a message that is an object', () => retry({ code: 'odd', message: {} as unknown as string })],
    ['a kind that does not exist', () => ({ kind: 'finished' })],
  ])('P11 an outcome with %s is a failed try and spoils no other ending', async (_what, odd) => {
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
    // the routes must be there before the first message is sent
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

describe('fan-out', () => {
  it('M11 P11 one message goes to two destinations, each with its own retries and dead letters', async () => {
    const tries = { steady: 0, broken: 0 };
    await startRelay(db, {
      destinations: {
        steady: handler(() => {
          tries.steady += 1;
          return tries.steady === 1 ? retry({ code: 'once' }) : undefined;
        }, soon),
        broken: handler(() => {
          tries.broken += 1;
          return retry({ code: 'always' });
        }, soon),
      },
      routes: [
        { topic: 'both.*', to: 'steady' },
        { topic: 'both.happened', to: 'broken' },
        // a second route to the same place does not mean a second delivery
        { topic: '*', to: 'steady' },
      ],
    });
    const id = await sendOne(db, { topic: 'both.happened' });
    await untilPlaces(db, 'steady', { waiting: 0, leased: 0, delivered: 1, dead: 0 });
    await untilPlaces(db, 'broken', { waiting: 0, leased: 0, delivered: 0, dead: 1 });
    expect(tries).toEqual({ steady: 2, broken: 3 });
    expect((await attemptsOf(db, id, 'steady')).map(({ state }) => state)).toEqual([
      'retryable',
      'dispatched',
    ]);
    expect((await attemptsOf(db, id, 'broken')).map(({ state }) => state)).toEqual([
      'retryable',
      'retryable',
      'failed',
    ]);
    expect(await misplaced(db)).toEqual([]);
  });
});

describe('batches', () => {
  it('M11 a batch handler answers for each message, and each ends by its own answer', async () => {
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

  it.each<[string, (count: number) => readonly Outcome[]]>([
    ['too few', (count) => Array.from({ length: count - 1 }, () => delivered())],
    ['too many', (count) => Array.from({ length: count + 1 }, () => delivered())],
    ['no', () => []],
  ])(
    'P11 a batch handler that gives %s outcomes has delivered nothing: all are tried again',
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

  it('P11 a batch answer with a hole in it is a failed try for that message, and the relay goes on', async () => {
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

  it('W4 a large batch for a handler that answers at once is delivered in one try each', async () => {
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

describe('what the relay tells', () => {
  it('a listener of events that throws does not stop the deliveries', async () => {
    const received: string[] = [];
    const { createRelay } = await import('../../src/config.js');
    const relay = createRelay({
      database: { url: db.url, schema: db.schema },
      destinations: { watched: handler((message) => void received.push(message.id)) },
      routes: [{ topic: 'watched', to: 'watched' }],
      onEvent: () => {
        throw new Error('the listener is broken');
      },
    });
    onTestFinished(() => relay.stop().catch(() => undefined));
    await relay.start();
    const ids = await send(db, numbered('watched', 2));
    await untilCount(received, 2, 'deliveries');
    expect(received).toEqual(ids);
    await untilEnded(db, 'watched');
  });
});
