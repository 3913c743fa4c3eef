// The whenDead policies: when the head of a key dies, the next message continues, or everything behind it waits in
// place, or is parked among the dead letters, until an operator decides. Order is kept in every case.

import { beforeAll, describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import { expire, reap, releaseLease, settle, settleDelivered } from '../support/settling.js';
import { defineDestination } from '../support/destinations.js';
import type { QueueOptions } from '../support/destinations.js';
import type { Claim, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

beforeAll(async () => {
  await db.query(`UPDATE ${db.quoted}.retention_floors SET dead_letters_days = 0`);
});

async function operate(call: string, values: unknown[]): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT ${db.quoted}.${call} AS count`,
    values,
  );
  return only(rows).count;
}

const retryDead = (queue: Queue, ...ids: string[]) =>
  operate('retry_dead_letters($1, $2)', [queue.name, ids]);
const skip = (queue: Queue, ...ids: string[]) =>
  operate('skip_dead_letters($1, $2)', [queue.name, ids]);
const discard = (queue: Queue, ...ids: string[]) =>
  operate('discard_dead_letters($1, $2)', [queue.name, ids]);

async function enqueue(queue: Queue, count: number): Promise<string[]> {
  return queue.enqueue(count, { key: 'k', namespace: queue.name });
}

/** Three messages of one key, the first of which was rejected. */
async function withDeadHead(
  options: QueueOptions,
): Promise<{ queue: Queue; head: string; ids: string[] }> {
  const queue = await makeQueue(db, options);
  const ids = await enqueue(queue, 3);
  const [head = ''] = ids;
  await settle(
    db,
    await queue.claim(),
    ids.map((id) => ({ id, outcome: id === head ? 'reject' : 'release', errorCode: 'bad' })),
  );
  return { queue, head, ids };
}

/** Claims and delivers; returns the sequences with the previous ones. */
async function take(queue: Queue): Promise<string[]> {
  const claim = await queue.claim();
  await settleDelivered(db, claim);
  return claim.rows.map((row) => `${row.sequence} after ${row.previous_sequence}`);
}

const dead = async (queue: Queue) =>
  (await queue.deadLetters())
    .toSorted((a, b) => Number(a['sequence']) - Number(b['sequence']))
    .map((letter) => `${letter['sequence']} ${letter['reason']}`);

describe('continue', () => {
  it('P2 the key continues, its next message shows the gap, and the dead one may be delivered late', async () => {
    const { queue, head } = await withDeadHead({ whenDead: 'continue' });
    expect(await take(queue)).toEqual(['2 after 1', '3 after 2']);
    expect(await retryDead(queue, head)).toBe(1);
    await enqueue(queue, 1);
    expect(await take(queue)).toEqual(['1 after null', '4 after 3']);
    expect(await misplaced(db)).toEqual([]);
  });
});

describe('block', () => {
  it('P2 everything behind the dead head waits, including later messages, and other keys continue', async () => {
    const { queue } = await withDeadHead({ whenDead: 'block' });
    await enqueue(queue, 1);
    await queue.enqueue(1, { key: 'other', namespace: queue.name });
    await queue.enqueue(1);
    expect((await queue.claim()).rows.map((row) => row.key)).toEqual([null, 'other']);
    expect(await queue.waiting()).toHaveLength(3);
  });

  it('P2 a retried head goes first, then the others', async () => {
    const { queue, head } = await withDeadHead({ whenDead: 'block' });
    expect(await retryDead(queue, head)).toBe(1);
    expect(await take(queue)).toEqual(['1 after 0', '2 after 1', '3 after 2']);
  });

  it('P2 a skipped head stays dead and is passed; a discarded one is gone', async () => {
    for (const [treat, left] of [
      [skip, ['1 rejected']],
      [discard, []],
    ] as const) {
      const { queue, head } = await withDeadHead({ whenDead: 'block' });
      expect(await treat(queue, head)).toBe(1);
      expect(await take(queue)).toEqual(['2 after 1', '3 after 2']);
      expect(await dead(queue)).toEqual(left);
    }
  });

  it('P2 a retried head carries its previous sequence; a skipped one counts as passed', async () => {
    const { queue, head } = await withDeadHead({ whenDead: 'block' });
    await retryDead(queue, head);
    expect(await take(queue)).toEqual(['1 after 0', '2 after 1', '3 after 2']);
    const other = await withDeadHead({ whenDead: 'block' });
    await skip(other.queue, other.head);
    expect(await take(other.queue)).toEqual(['2 after 1', '3 after 2']);
  });

  it('P2 retention never unblocks a lane', async () => {
    const { queue, head } = await withDeadHead({ whenDead: 'block' });
    await operate("prune_dead_letters('0')", []);
    expect(await dead(queue)).toEqual(['1 rejected']);
    expect(await take(queue)).toEqual([]);
    await skip(queue, head);
    await operate("prune_dead_letters('0')", []);
    expect(await dead(queue), 'once it is skipped').toEqual([]);
  });

  it('P2 P12 of several messages that fail for good at once, the first blocks the key and the others return behind it', async () => {
    const queue = await makeQueue(db, { whenDead: 'block', maxAttempts: 1 });
    const [head = ''] = await enqueue(queue, 2);
    await expire(db, await queue.claim());
    await reap(db);
    expect(await dead(queue)).toEqual(['1 exhausted', '2 parked']);
    await enqueue(queue, 1);
    expect(await skip(queue, head)).toBe(1);
    expect(await take(queue)).toEqual(['2 after 1', '3 after 2']);
    expect(await misplaced(db)).toEqual([]);
  });

  it('P2 a lowered maximum of tries blocks the key at the first message that becomes a dead letter', async () => {
    const queue = await makeQueue(db, { whenDead: 'block', retryBaseMs: 0, retryMaxMs: 0 });
    const ids = await enqueue(queue, 3);
    await expire(db, await queue.claim({ limit: 2 }));
    await reap(db);
    await defineDestination(db, queue.name, { maxAttempts: 1, whenDead: 'block' });
    expect(await dead(queue)).toEqual(['1 exhausted', '2 parked']);
    expect(await take(queue)).toEqual([]);
    expect(await retryDead(queue, ids[0] ?? '')).toBe(2);
    expect(await take(queue)).toEqual(['1 after 0', '2 after 1', '3 after 2']);
  });
});

describe('park', () => {
  it('P2 messages behind the dead head, and later ones, wait among the dead letters', async () => {
    const { queue } = await withDeadHead({ whenDead: 'park' });
    expect(await dead(queue)).toEqual(['1 rejected', '2 parked', '3 parked']);
    await enqueue(queue, 1);
    expect(await take(queue)).toEqual([]);
    expect(await dead(queue)).toEqual(['1 rejected', '2 parked', '3 parked', '4 parked']);
    expect(await queue.waiting()).toEqual([]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('P2 parked messages come back in order with their head, and not without it', async () => {
    const { queue, head, ids } = await withDeadHead({ whenDead: 'park' });
    expect(await retryDead(queue, ids[1] ?? ''), 'a parked one').toBe(0);
    expect(await retryDead(queue, head)).toBe(3);
    expect(await take(queue)).toEqual(['1 after 0', '2 after 1', '3 after 2']);
    expect(await dead(queue)).toEqual([]);
  });

  it('P2 parked messages come back in order when their head is skipped or discarded', async () => {
    for (const treat of [skip, discard]) {
      const { queue, head } = await withDeadHead({ whenDead: 'park' });
      expect(await treat(queue, head)).toBe(1);
      expect(await take(queue)).toEqual(['2 after 1', '3 after 2']);
    }
  });

  it('P2 discarding a head also discards its parked messages that match the filter', async () => {
    const queue = await makeQueue(db, { whenDead: 'park' });
    const ids = await enqueue(queue, 6);
    await settle(
      db,
      await queue.claim(),
      ids.map((id, n) => ({ id, outcome: n === 0 ? 'reject' : 'release', errorCode: 'bad' })),
    );
    expect(await dead(queue)).toHaveLength(6);
    expect(await operate('discard_dead_letters($1, max_count => 3)', [queue.name])).toBe(6);
    expect(await take(queue)).toEqual([]);
    expect(await misplaced(db)).toEqual([]);
  });

  it.each<[string, (claim: Claim, followers: string[]) => Promise<unknown>]>([
    ['gives back', (claim) => releaseLease(db, claim)],
    [
      'nacks',
      async (claim, followers) => {
        for (const id of followers)
          await db.query(`SELECT ${db.quoted}.nack($1, $2, retry_after => '0')`, [
            claim.relayId,
            id,
          ]);
      },
    ],
    [
      'dies over',
      async (claim) => {
        await expire(db, claim);
        await reap(db);
      },
    ],
  ])(
    'P2 a message that a worker %s after the head has died is parked too, and comes back with it',
    async (_how, end) => {
      const queue = await makeQueue(db, { whenDead: 'park' });
      const [head = '', ...followers] = await enqueue(queue, 3);
      const claim = await queue.claim();
      await settle(db, claim, [{ id: head, outcome: 'reject', errorCode: 'bad' }]);
      await end(claim, followers);
      expect(await dead(queue)).toEqual(['1 rejected', '2 parked', '3 parked']);
      expect(await take(queue)).toEqual([]);
      expect(await retryDead(queue, head)).toBe(3);
      expect(await take(queue)).toEqual(['1 after 0', '2 after 1', '3 after 2']);
      expect(await misplaced(db)).toEqual([]);
    },
  );

  it('P2 retention keeps parked messages, and their head', async () => {
    const { queue, head } = await withDeadHead({ whenDead: 'park' });
    await operate("prune_dead_letters('0')", []);
    expect(await retryDead(queue, head)).toBe(3);
  });
});
