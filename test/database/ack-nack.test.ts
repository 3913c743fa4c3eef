// ack and nack: the simple SQL functions to settle, for workers in any language, and error texts from any source.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { cleanText } from '../../src/core/outcome.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

describe('ack and nack', () => {
  async function call(sql: string, values: unknown[]): Promise<boolean> {
    const { rows } = await db.query<{ done: boolean }>(
      `SELECT ${db.quoted}.${sql} AS done`,
      values,
    );
    return only(rows).done;
  }

  it('M9 ack settles what the token holds now, with its receipt, and only for the right attempt', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    const { relayId } = await queue.claim();
    expect(await call('ack($1, $2)', [randomUUID(), id])).toBe(false);
    expect(await call('ack($1, $2, 2)', [relayId, id])).toBe(false);
    expect(await call(`ack($1, $2, 1, 'receipt')`, [relayId, id])).toBe(true);
    expect(await call('ack($1, $2)', [relayId, id])).toBe(false);
    expect(await queue.attempts(id)).toMatchObject([{ state: 'dispatched', reference: 'receipt' }]);
  });

  it('M9 P11 nack requeues with its error, or makes a dead letter if it is terminal', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    const { relayId } = await queue.claim();
    expect(await call(`nack($1, $2, 'x', attempt => 2)`, [relayId, id])).toBe(false);
    const nack = `nack($1, $2, 'no route', 'E1', retry_after => interval '0')`;
    expect(await call(nack, [relayId, id])).toBe(true);
    expect(await queue.status(id)).toMatchObject({
      status: 'pending',
      retrying: true,
      last_error: 'no route',
      last_error_code: 'E1',
    });
    const again = await queue.claimOne();
    expect(await call(`nack($1, $2, 'gone', terminal => true)`, [again.relayId, id])).toBe(true);
    expect(await queue.status(id)).toMatchObject({ status: 'dead', last_error: 'gone', tries: 2 });
  });

  it('P4 M10 a long error or reference of a worker is cut with a mark, as the relay does', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    const long = 'é'.repeat(1_000_000);
    const kept = `${'é'.repeat(1999)}…`;
    const { relayId } = await queue.claim();
    await call(`nack($1, $2, $3, retry_after => interval '0')`, [relayId, id, long]);
    const second = await queue.claimOne();
    await call('ack($1, $2, reference => $3)', [second.relayId, id, long]);
    expect(await queue.attempts(id)).toMatchObject([
      { state: 'retryable', error_message: kept },
      { state: 'dispatched', reference: kept },
    ]);
    const [other = ''] = await queue.enqueue(1);
    const third = await queue.claim();
    await call('nack($1, $2, $3, terminal => true)', [third.relayId, other, long]);
    expect(await queue.status(other)).toMatchObject({ status: 'dead', last_error: kept });
  });
});

describe('hostile contents', () => {
  async function failWith(queue: Queue, text: string): Promise<string | null> {
    const [id = ''] = await queue.enqueue(1);
    const claim = await queue.claimOne();
    await settle(db, claim, [
      { id, outcome: 'reject', errorCode: cleanText(text, 100), errorMessage: cleanText(text) },
    ]);
    return only(await queue.attempts(id)).error_message;
  }

  it('P4 M10 an error text with NUL, half a surrogate pair or a megabyte is cleaned and recorded', async () => {
    const queue = await makeQueue(db);
    expect(await failWith(queue, 'a\u0000b')).toBe('a\uFFFDb');
    expect(await failWith(queue, 'a\ud83db')).toBe('a\uFFFDb');
    expect(await failWith(queue, '🚚'.repeat(500_000))).toMatch(/^🚚+.…$/u);
    expect(await failWith(queue, `'; DROP TABLE x; -- \\ "`)).toBe(`'; DROP TABLE x; -- \\ "`);
  });
});
