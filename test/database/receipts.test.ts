// The receipt of the other side is stored with the attempt: its reference, its code and the beginning of its response,
// for deliveries and failures, in every way of settling and whatever it contains.

import { describe, expect, it } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { delivered, reject, retry } from '../../src/core/outcome.js';
import type { Receipt } from '../../src/core/outcome.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  Gate,
  numbered,
  send,
  sendOne,
  startRelay,
  untilEnded,
  untilPlaces,
} from '../support/relay.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

const numberOf = (message: { payload: unknown }) => (message.payload as { n: number }).n;

describe('a receipt', () => {
  it('P4 is stored for each message of a batch, also when the whole claim was delivered at once', async () => {
    const receiptOf = (n: number): Receipt => ({
      reference: `partition 1 offset ${n}`,
      remoteCode: n % 2 === 0 ? '202' : '200',
      response: `{"n":${n}}`,
    });
    await startRelay(db, {
      destinations: {
        broker: batchHandler((messages) =>
          Promise.resolve(messages.map((message) => delivered(receiptOf(numberOf(message))))),
        ),
      },
    });
    const ids = await send(db, numbered('broker', 50));
    await untilEnded(db, 'broker');
    for (const [index, id] of ids.entries()) {
      const { reference, remoteCode, response } = receiptOf(index + 1);
      expect(await attemptsOf(db, id, 'broker')).toMatchObject([
        { state: 'dispatched', reference, remote_code: remoteCode, response, error_code: null },
      ]);
    }
  });

  it('P4 is stored for messages that are settled before the rest of their claim', async () => {
    const gate = new Gate();
    await startRelay(db, {
      destinations: {
        parts: handler(async (message) => {
          const n = numberOf(message);
          if (n > 2) await gate.pass();
          return n === 2 ? delivered() : delivered({ response: `answer ${n}`, remoteCode: '201' });
        }),
      },
    });
    const ids = await send(db, numbered('parts', 4));
    await untilPlaces(db, 'parts', { delivered: 2 });
    gate.open();
    await untilEnded(db, 'parts');
    const kept = await Promise.all(ids.map(async (id) => only(await attemptsOf(db, id, 'parts'))));
    expect(kept.map(({ response }) => response)).toEqual([
      'answer 1',
      null,
      'answer 3',
      'answer 4',
    ]);
    expect(kept.map((attempt) => attempt.remote_code)).toEqual(['201', null, '201', '201']);
  });

  it('P4 W3 of a failed try is stored beside its error', async () => {
    await startRelay(db, {
      destinations: {
        refusing: handler((message) =>
          message.tries === 1
            ? retry({ code: 'http_status', remoteCode: '500', response: 'try later', afterMs: 1 })
            : reject({ code: 'http_status', remoteCode: '422', response: '{"why":"never"}' }),
        ),
      },
    });
    const id = await sendOne(db, { topic: 'refusing' });
    await untilPlaces(db, 'refusing', { dead: 1 });
    expect(await attemptsOf(db, id, 'refusing')).toMatchObject([
      { state: 'retryable', remote_code: '500', response: 'try later' },
      { state: 'failed', remote_code: '422', response: '{"why":"never"}' },
    ]);
    const { rows } = await db.query(
      `SELECT response FROM ${db.quoted}.attempt_log WHERE message_id = $1 ORDER BY claim_no`,
      [id],
    );
    expect(rows).toEqual([{ response: 'try later' }, { response: '{"why":"never"}' }]);
  });

  it.each<[string, Receipt, Partial<Record<'reference' | 'remote_code' | 'response', unknown>>]>([
    ['NUL', { reference: 'a\u0000b', response: '\u0000' }, { reference: 'a\uFFFDb' }],
    ['half a surrogate pair', { response: 'x\uD800' }, { response: 'x\uFFFD' }],
    [
      'an endless answer',
      { response: 'x'.repeat(1_000_000) },
      { response: `${'x'.repeat(4095)}…` },
    ],
    ['an endless code', { remoteCode: '9'.repeat(5000) }, { remote_code: '9'.repeat(100) }],
    ['array syntax', { reference: '{"a",NULL}', response: 'NULL' }, { response: 'NULL' }],
    ['no text', { response: { a: 1 } } as unknown as Receipt, { response: '{"a":1}' }],
  ])('P11 %s does not prevent the settle', async (_what, receipt, kept) => {
    const name = `hostile-${Math.random().toString(36).slice(2, 8)}`;
    const relay = await startRelay(db, {
      destinations: { [name]: handler(() => delivered(receipt)) },
    });
    const ids = await send(db, numbered(name, 3));
    await untilPlaces(db, name, { waiting: 0, leased: 0, delivered: 3 });
    const attempt = only(await attemptsOf(db, ids[0] ?? '', name));
    expect(attempt).toMatchObject(kept);
    expect(relay.of('trouble')).toEqual([]);
  });

  it.each([
    ['delivered', { reference: 'r' }],
    ['to be tried again', { outcome: 'retry', errorCode: 'x', retryAfterMs: 3_600_000 }],
  ] as const)(
    'C4 P4 a part of a claim, %s, is recorded in linear time, whatever its size',
    async (_what, ending) => {
      const queue = await makeQueue(db);
      const client = await db.connect();
      const plans: string[] = [];
      client.on('notice', ({ message = '' }) => plans.push(message));
      await client.query(
        `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
         SET auto_explain.log_analyze = on; SET auto_explain.log_level = notice`,
      );
      for (const count of [50, 200, 1000, 3000]) {
        await queue.enqueue(count + 2);
        const claim = await queue.claim({ limit: count + 2 });
        const [told, ...rest] = claim.rows.map((row) => ({
          id: row.message_id,
          claimNo: row.claim_no,
          ...ending,
        }));
        // one was settled before: the others are looked up
        await settle(db, claim, told ? [told] : []);
        expect(await settle(db, claim, rest.slice(0, count), client)).toEqual({
          settled: count,
          lost: [],
        });
      }
      expect(plans.join('\n')).toContain('Insert on attempts');
      const compared = plans.join('\n').match(/Rows Removed by Join Filter: \d{4,}/g);
      expect(compared).toBeNull();
    },
  );
});
