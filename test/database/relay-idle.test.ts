// How a relay becomes idle: no message is stranded, at whatever moment a producer commits, and no notification is sent
// while a relay is active.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import {
  destinationId,
  listenerState,
  listen,
  untilIdle,
  untilListener,
} from '../support/listeners.js';
import { only } from '../support/only.js';
import { enqueueMany } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  numbered,
  waitLimitMs,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const notificationsOnly = { fallbackPollMs: null };

describe('the moment of becoming idle', () => {
  it('P7 a message of a transaction that began while the relay was active and commits after it became idle is delivered', async () => {
    const names = Array.from({ length: 5 }, (_, n) => `held-${n}`);
    const received = new Map(names.map((name) => [name, [] as string[]]));
    await startRelay(db, {
      destinations: Object.fromEntries(
        names.map((name) => [
          name,
          handler((message) => void received.get(name)?.push(message.id)),
        ]),
      ),
      relay: { ...notificationsOnly, batchSize: 10 },
    });
    const wakeUps = await listen(db);
    await Promise.all(
      names.map(async (name) => {
        await send(db, numbered(name, 60));
        await untilListener(db, name, { active: true });
        const producers = await Promise.all([db.connect(), db.connect(), db.connect()]);
        const late: string[] = [];
        for (const producer of producers) {
          await producer.query('BEGIN');
          late.push(only(await enqueueMany(db, producer, [{ topic: name }])).id);
        }
        await untilListener(db, name, { active: false });
        // each commits only when the one before it has arrived: the relay has to keep polling throughout
        for (const [index, producer] of producers.entries()) {
          await producer.query('COMMIT');
          await waitFor(() => received.get(name)?.includes(late[index] ?? ''), {
            what: `late message ${index + 1} of ${name}`,
            timeoutMs: waitLimitMs,
          });
          await producer.end();
        }
      }),
    );
    await wakeUps.heardAll();
    const ids = await Promise.all(names.map((name) => destinationId(db, name)));
    const first = wakeUps.notifications.filter((payload) => ids.includes(Number(payload))).length;
    // each burst sent one notification; the late messages saw an active relay and sent none
    expect(first).toBe(names.length);
  });

  it('P7 messages committed at every moment around becoming idle are all delivered', async () => {
    const names = Array.from({ length: 8 }, (_, n) => `random-${n}`);
    await startRelay(db, {
      destinations: Object.fromEntries(names.map((name) => [name, handler(() => undefined)])),
      relay: { ...notificationsOnly, batchSize: 10 },
    });
    await Promise.all(
      names.map(async (name) => {
        await send(db, numbered(name, 60));
        await untilListener(db, name, { active: true });
        // a burst keeps a relay active for about two seconds; the server does the waiting
        const produce = async (): Promise<void> => {
          const producer = await db.connect();
          await producer.query('SELECT pg_sleep($1)', [0.8 + Math.random() * 1.2]);
          for (let n = 0; n < 2; n += 1) {
            await producer.query('BEGIN');
            await enqueueMany(db, producer, [{ topic: name }]);
            await producer.query('SELECT pg_sleep($1)', [Math.random() * 0.4]);
            await producer.query('COMMIT');
          }
          await producer.end();
        };
        await Promise.all([produce(), produce()]);
        await untilPlaces(db, name, { waiting: 0, leased: 0, delivered: 64 });
      }),
    );
  });

  it('P7 a relay that died while it counted as active does not leave a message behind', async () => {
    const received: unknown[] = [];
    await startRelay(db, {
      destinations: { orphaned: handler((message) => void received.push(message.payload)) },
      relay: { ...notificationsOnly, reapMs: 50 },
    });
    await untilIdle(db);
    const wakeUps = await listen(db);
    await db.query(
      `INSERT INTO ${db.quoted}.listeners (destination_id, relay_id, listening_until, active_until)
       VALUES ($1, $2, clock_timestamp() + interval '400 ms', clock_timestamp() + interval '400 ms')`,
      [await destinationId(db, 'orphaned'), randomUUID()],
    );
    await sendOne(db, { topic: 'orphaned', payload: 'unrung' });
    await wakeUps.heardAll();
    expect(wakeUps.notifications, 'no notification is sent while a relay counts as active').toEqual(
      [],
    );
    await untilCount(received, 1, 'deliveries');
  });
});

describe('notifications', () => {
  it('P7 are sent once per statement, however many messages it has, and not while a relay is active', async () => {
    await startRelay(db, {
      destinations: { quiet: handler(() => undefined) },
      relay: { ...notificationsOnly, batchSize: 10 },
    });
    await untilListener(db, 'quiet', { listening: true, active: false });
    const wakeUps = await listen(db);
    await send(db, numbered('quiet', 60));
    await wakeUps.heardAll();
    expect(wakeUps.notifications).toEqual([String(await destinationId(db, 'quiet'))]);
    await untilListener(db, 'quiet', { active: true });
    for (let n = 0; n < 20; n += 1) await sendOne(db, { topic: 'quiet' });
    expect(await listenerState(db, 'quiet'), 'still active').toMatchObject({ active: true });
    await wakeUps.heardAll();
    expect(wakeUps.notifications, 'while active').toHaveLength(1);
    await untilListener(db, 'quiet', { active: false });
    await untilPlaces(db, 'quiet', { waiting: 0, leased: 0, delivered: 80 });
    await sendOne(db, { topic: 'quiet' });
    await wakeUps.heardAll();
    expect(wakeUps.notifications, 'idle again').toHaveLength(2);
  });

  it('P7 are not sent when no relay listens', async () => {
    const relay = await startRelay(db, {
      destinations: { empty: handler(() => undefined) },
    });
    await relay.stop();
    const wakeUps = await listen(db);
    await sendOne(db, { topic: 'empty' });
    await wakeUps.heardAll();
    expect(wakeUps.notifications).toEqual([]);
  });
});
