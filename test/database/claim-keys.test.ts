// SQL workers and keys: a claim returns one message of each key, so the order of a key holds whatever the worker does
// with the messages.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { reap } from '../support/settling.js';

const db = testDatabase();
const atOnce = { retryBaseMs: 0, retryMaxMs: 0 };

type Message = { message_id: string; key: string | null; sequence: string | null };

class Worker {
  readonly token = randomUUID();
  constructor(readonly queue: Queue) {}

  async claim(options = ''): Promise<Message[]> {
    const { rows } = await db.query<Message>(
      `SELECT * FROM ${db.quoted}.claim($1, $2, 100${options})`,
      [this.queue.name, this.token],
    );
    return rows;
  }

  /** A letter for the key and the number: a1. */
  async numbers(options = ''): Promise<string[]> {
    const rows = await this.claim(options);
    return rows.map((row) => (row.key === null ? '-' : `${row.key}${row.sequence}`)).toSorted();
  }

  async end(call: string, message: Message): Promise<unknown> {
    const { rows } = await db.query<{ done: unknown }>(`SELECT ${db.quoted}.${call} AS done`, [
      this.token,
      message.message_id,
    ]);
    return only(rows).done;
  }
}

async function workerOf(keys: string, options = {}): Promise<Worker> {
  const queue = await makeQueue(db, { ...atOnce, ...options });
  await queue.enqueueAll(
    Array.from(keys, (key) => (key === '-' ? {} : { key, namespace: queue.name })),
  );
  return new Worker(queue);
}

describe('a claim in SQL', () => {
  it('P2 P12 returns one message of each key, and all messages without a key', async () => {
    const worker = await workerOf('aaab-bc--');
    expect(await worker.numbers()).toEqual(['-', '-', '-', 'a1', 'b1', 'c1']);
    expect(await worker.numbers()).toEqual([]);
    expect(await new Worker(worker.queue).numbers()).toEqual([]);
  });

  it('P2 returns one message of each key also with fairness, and for one tenant or namespace', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    const worker = new Worker(queue);
    await queue.enqueueAll(
      ['x', 'y'].flatMap((tenantId) =>
        Array.from({ length: 8 }, (_, n) => ({ key: n % 2 === 0 ? 'a' : 'b', tenantId })),
      ),
    );
    expect(await worker.numbers(`, tenant => 'x'`)).toEqual(['a1', 'b1']);
    expect(await worker.numbers(`, only_namespace => 'default'`)).toEqual(['a1', 'b1']);
    expect(await worker.numbers()).toEqual([]);
  });

  it('P2 P12 returns the next message of a key when the one before was delivered', async () => {
    const worker = await workerOf('aabb');
    const [first, second] = await worker.claim();
    expect(await worker.end('ack($1, $2)', first as Message)).toBe(true);
    expect(await worker.numbers()).toEqual([`${first?.key}2`]);
    expect(await worker.end('mark_delivered($1, ARRAY[$2]::uuid[])', second as Message)).toBe(1);
    expect(await worker.numbers()).toEqual([`${second?.key}2`]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('P2 returns the same message of a key again after a nack, and never the next one', async () => {
    const worker = await workerOf('aa');
    for (let tries = 1; tries <= 3; tries += 1) {
      const message = only(await worker.claim());
      expect(message.sequence).toBe('1');
      expect(await worker.end(`nack($1, $2, 'not now', retry_after => '0')`, message)).toBe(true);
    }
    const waiting = only(await worker.claim());
    expect(await worker.end(`nack($1, $2, 'later', retry_after => '1 hour')`, waiting)).toBe(true);
    expect(await worker.numbers()).toEqual([]);
  });

  it('P2 P12 returns the same message of a key again when its worker is gone', async () => {
    const worker = await workerOf('aab');
    await worker.claim();
    await db.query(`UPDATE ${db.quoted}.leases SET expires_at = now() - interval '1 second'
                     WHERE relay_id = '${worker.token}'`);
    await reap(db);
    const next = new Worker(worker.queue);
    // each message is claimed alone once, because it may have killed the worker
    const found = [...(await next.claim()), ...(await next.claim())];
    expect(found.map(({ sequence }) => sequence)).toEqual(['1', '1']);
    expect(await next.numbers()).toEqual([]);
  });

  it('P2 continues behind a dead message as the whenDead policy says', async () => {
    const open = await workerOf('aa');
    await open.end('nack($1, $2, terminal => true)', only(await open.claim()));
    expect(await open.numbers()).toEqual(['a2']);
    const blocked = await workerOf('aa', { whenDead: 'block' });
    await blocked.end('nack($1, $2, terminal => true)', only(await blocked.claim()));
    expect(await blocked.numbers()).toEqual([]);
  });
});
