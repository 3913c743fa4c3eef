// A destination that reports that nothing will arrive is paused for all relays, visibly. Its deliveries wait, use no
// tries, and continue when an operator resumes it.

import { describe, expect, it } from 'vitest';

import { readDestinations } from '../../src/listing/reports.js';
import { batchHandler, handler } from '../../src/destinations/handler.js';
import { delivered, pause } from '../../src/core/outcome.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  Gate,
  numbered,
  openDatabase,
  places,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import { settle } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const gone = () => pause({ code: 'http_status', remoteCode: '410', message: 'it moved away' });

async function reported(name: string) {
  const found = await readDestinations(openDatabase(db));
  return only(found.filter((destination) => destination.name === name));
}

async function actionsOf(name: string) {
  const { rows } = await db.query<{ actor: string; action: string; subject: object }>(
    `SELECT actor, action, subject FROM ${db.quoted}.operator_actions
      WHERE subject ->> 'destination' = $1 AND action <> 'define_destination' ORDER BY id`,
    [name],
  );
  return rows;
}

async function resume(name: string): Promise<void> {
  await db.query(`SELECT ${db.quoted}.set_paused($1, false, 'ann')`, [name]);
}

/** Waits until no reader holds the cursor. */
async function untilUnread(name: string): Promise<void> {
  const unread = async () => {
    const { rows } = await db.query<{ unread: boolean }>(
      `SELECT holder IS NULL AS unread FROM ${db.quoted}.holds WHERE name = 'cursor ' || $1`,
      [name],
    );
    return rows[0]?.unread;
  };
  await waitFor(unread, { what: 'the reader to release the cursor' });
}

describe('an outcome that pauses', () => {
  it('W2 pauses the destination once, with actor and reason, and uses no try', async () => {
    let closed = true;
    const calls: string[] = [];
    const relay = await startRelay(db, {
      destinations: {
        moved: handler(
          (message) => {
            calls.push(message.id);
            return closed ? gone() : delivered();
          },
          { concurrency: 2, retry: { maxAttempts: 1 } },
        ),
      },
      relay: { name: 'berlin-1' },
    });
    const ids = await send(db, numbered('moved', 30));
    expect((await relay.event('destination_paused')).failure).toMatchObject({ remoteCode: '410' });
    await untilPlaces(db, 'moved', { waiting: 30, leased: 0, dead: 0 });
    expect(await reported('moved')).toMatchObject({
      paused: true,
      pausedBy: 'relay berlin-1',
      pausedCode: 'http_status',
      pausedReason: '410: it moved away',
      waiting: 30,
    });
    expect(await actionsOf('moved')).toEqual([
      {
        actor: 'relay berlin-1',
        action: 'pause',
        subject: {
          destination: 'moved',
          code: 'http_status',
          remoteCode: '410',
          reason: 'it moved away',
        },
      },
    ]);
    // only the calls in flight, and not the thirty
    expect(calls.length).toBeLessThanOrEqual(2);
    expect(relay.of('destination_paused')).toHaveLength(1);
    const [first = ''] = calls;
    expect(await attemptsOf(db, first, 'moved')).toMatchObject([
      { state: 'released', tries: 0, error_code: 'http_status', remote_code: '410' },
    ]);

    closed = false;
    await resume('moved');
    await untilPlaces(db, 'moved', { waiting: 0, leased: 0, delivered: 30, dead: 0 });
    expect(await reported('moved')).toMatchObject({
      paused: false,
      pausedAt: null,
      pausedBy: null,
      pausedCode: null,
      pausedReason: null,
    });
    expect(new Set(calls)).toEqual(new Set(ids));
    expect(await misplaced(db)).toEqual([]);
  });

  it('W2 is ignored if its message was sent before an operator resumed the destination', async () => {
    const gate = new Gate();
    const calls: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        late: handler(
          async (message) => {
            const { n } = message.payload as { n: number };
            calls.push(n);
            if (calls.length === 1) return gone();
            if (calls.length === 2) await gate.pass();
            return calls.length === 2 ? gone() : delivered();
          },
          { concurrency: 2 },
        ),
      },
    });
    await send(db, numbered('late', 2));
    await relay.event('destination_paused');
    await untilPlaces(db, 'late', { waiting: 1, leased: 1 });
    await resume('late');
    gate.open();
    await untilPlaces(db, 'late', { waiting: 0, leased: 0, delivered: 2 });
    expect(relay.of('destination_paused')).toHaveLength(1);
    expect((await actionsOf('late')).map(({ action }) => action)).toEqual(['pause', 'resume']);
  });

  it('W2 in a batch, the others are recorded with their outcomes, and their keys keep their order', async () => {
    let closed = true;
    const received: number[] = [];
    await startRelay(db, {
      destinations: {
        batch: batchHandler((messages) =>
          Promise.resolve(
            messages.map((message) => {
              const { n } = message.payload as { n: number };
              if (closed && n === 2) return gone();
              received.push(n);
              return delivered();
            }),
          ),
        ),
      },
    });
    await send(db, numbered('batch', 6, { key: 'one' }));
    await untilPlaces(db, 'batch', { waiting: 5, leased: 0, delivered: 1, dead: 0 });
    closed = false;
    await resume('batch');
    await untilPlaces(db, 'batch', { waiting: 0, leased: 0, delivered: 6 });
    expect(received).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it('W2 any text of the response is stored as text', async () => {
    const nasty = `NUL \u0000 half \uD800 '"; DROP TABLE x; -- ${'x'.repeat(9000)}`;
    const relay = await startRelay(db, {
      destinations: {
        nasty: handler(() =>
          pause({ code: nasty, remoteCode: nasty, message: nasty, response: nasty }),
        ),
      },
    });
    const id = await sendOne(db, { topic: 'nasty' });
    await relay.event('destination_paused');
    await untilPlaces(db, 'nasty', { waiting: 1, leased: 0 });
    const { pausedReason } = await reported('nasty');
    expect(pausedReason).toMatch(/^NUL \uFFFD half \uFFFD/);
    expect(pausedReason?.length).toBe(2000);
    const { response } = only(await attemptsOf(db, id, 'nasty'));
    expect(response).toHaveLength(4096);
    expect(relay.of('trouble')).toEqual([]);
  });
});

describe('in SQL', () => {
  it('W2 an outcome pauses only if the lease was claimed after the last resume', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(2);
    const [early, late] = [await queue.claimOne(), await queue.claimOne()];
    const ending = (id: string) => [{ id, outcome: 'pause' as const, errorCode: 'gone' }];
    await settle(db, early, ending(early.id));
    expect(await reported(queue.name)).toMatchObject({ paused: true, pausedCode: 'gone' });
    await resume(queue.name);
    await settle(db, late, ending(late.id));
    expect(await reported(queue.name)).toMatchObject({ paused: false });
    expect(await places(db, queue.name)).toMatchObject({ waiting: 2, leased: 0 });
    const again = await queue.claimOne();
    await settle(db, again, ending(again.id));
    expect(await reported(queue.name)).toMatchObject({ paused: true });
    expect((await queue.waiting()).map(({ tries }) => tries)).toEqual([0, 0]);
  });

  it('W2 an operator gives a reason, which stays until the destination is resumed', async () => {
    const queue = await makeQueue(db);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'ann', 'they move house')`, [
      queue.name,
    ]);
    // a second pause changes nothing
    await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'bob', 'another')`, [queue.name]);
    expect(await reported(queue.name)).toMatchObject({
      paused: true,
      pausedBy: 'ann',
      pausedCode: null,
      pausedReason: 'they move house',
    });
    await resume(queue.name);
    expect(await reported(queue.name)).toMatchObject({ paused: false, pausedReason: null });
  });
});

describe('stream mode', () => {
  it('W2 stops at the message whose outcome pauses, visibly, and continues with it', async () => {
    let closed = true;
    const received: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        river: handler(
          (message) => {
            const { n } = message.payload as { n: number };
            if (closed && n === 3) return gone();
            received.push(n);
            return delivered();
          },
          { mode: 'stream', from: 'beginning' },
        ),
      },
      relay: { leaseMs: 1500, reapMs: 500 },
    });
    await send(db, numbered('river', 5));
    await relay.event('destination_paused');
    expect(await reported('river')).toMatchObject({ paused: true, pausedReason: /^410/ });
    await untilUnread('river');
    const { rows } = await db.query(
      `SELECT error_code FROM ${db.quoted}.cursors WHERE name = 'river'`,
    );
    expect(rows).toEqual([{ error_code: 'http_status' }]);
    const taken = await db.query(
      `SELECT * FROM ${db.quoted}.take_cursor('river', gen_random_uuid(), 'another', 1000)`,
    );
    expect(taken.rows).toEqual([]);
    expect(received).toEqual([1, 2]);
    closed = false;
    await resume('river');
    await untilCount(received, 5, 'messages');
    expect(received).toEqual([1, 2, 3, 4, 5]);
    expect(relay.of('stream_parked')).toEqual([]);
  });

  it('M5 an operator’s pause stops the reader too, after the page in flight', async () => {
    const received: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        brook: handler((message) => void received.push((message.payload as { n: number }).n), {
          mode: 'stream',
          from: 'beginning',
        }),
      },
      relay: { leaseMs: 1500, reapMs: 500 },
    });
    await send(db, numbered('brook', 2));
    await untilCount(received, 2, 'messages');
    await db.query(`SELECT ${db.quoted}.set_paused('brook', true)`);
    await untilUnread('brook');
    expect(relay.of('stream_lost')).toEqual([]);
    await send(db, numbered('brook', 1));
    await resume('brook');
    await untilCount(received, 3, 'messages');
    expect(received).toEqual([1, 2, 1]);
  });
});
