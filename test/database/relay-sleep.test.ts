// How a relay falls asleep: nothing is stranded, whatever the moment at which a producer commits; and while a
// relay is awake anyway, nobody rings.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import {
  destinationId,
  doorbell,
  listen,
  untilAsleep,
  untilDoorbell,
} from '../support/doorbells.js';
import { only } from '../support/only.js';
import { enqueueMany } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  numbered,
  patienceMs,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const doorbellOnly = { fallbackPollMs: null };

describe('the moment of falling asleep', () => {
  it('P7 a transaction that began while the relay was awake and commits after it fell asleep strands nothing', async () => {
    const names = Array.from({ length: 5 }, (_, n) => `held-${n}`);
    const received = new Map(names.map((name) => [name, [] as string[]]));
    await startRelay(db, {
      destinations: Object.fromEntries(
        names.map((name) => [
          name,
          handler((message) => void received.get(name)?.push(message.id)),
        ]),
      ),
      relay: { ...doorbellOnly, batchSize: 10 },
    });
    const bells = await listen(db);
    await Promise.all(
      names.map(async (name) => {
        await send(db, numbered(name, 60));
        await untilDoorbell(db, name, { awake: true });
        const producers = await Promise.all([db.connect(), db.connect(), db.connect()]);
        const late: string[] = [];
        for (const producer of producers) {
          await producer.query('BEGIN');
          late.push(only(await enqueueMany(db, producer, [{ topic: name }])).id);
        }
        await untilDoorbell(db, name, { awake: false });
        // each commits only when the one before it has arrived: the relay has to keep its vigil throughout
        for (const [index, producer] of producers.entries()) {
          await producer.query('COMMIT');
          await waitFor(() => received.get(name)?.includes(late[index] ?? ''), {
            what: `late message ${index + 1} of ${name}`,
            timeoutMs: patienceMs,
          });
          await producer.end();
        }
      }),
    );
    await bells.heardAll();
    const ids = await Promise.all(names.map((name) => destinationId(db, name)));
    const first = bells.rings.filter((ring) => ids.includes(Number(ring))).length;
    // the bursts rang, once each; the late ones saw the relay awake and did not
    expect(first).toBe(names.length);
  });

  it('P7 messages that are committed at every moment around the sleep are all delivered', async () => {
    const names = Array.from({ length: 8 }, (_, n) => `random-${n}`);
    await startRelay(db, {
      destinations: Object.fromEntries(names.map((name) => [name, handler(() => undefined)])),
      relay: { ...doorbellOnly, batchSize: 10 },
    });
    await Promise.all(
      names.map(async (name) => {
        await send(db, numbered(name, 60));
        await untilDoorbell(db, name, { awake: true });
        // a burst keeps a relay awake for about two seconds; the server does the waiting
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

  it('P7 a relay that died while it counted as awake does not leave a message behind', async () => {
    const received: unknown[] = [];
    await startRelay(db, {
      destinations: { orphaned: handler((message) => void received.push(message.payload)) },
      relay: { ...doorbellOnly, reapMs: 50 },
    });
    await untilAsleep(db);
    const bells = await listen(db);
    await db.query(
      `INSERT INTO ${db.quoted}.doorbells (destination_id, relay_id, listening_until, awake_until)
       VALUES ($1, $2, clock_timestamp() + interval '400 ms', clock_timestamp() + interval '400 ms')`,
      [await destinationId(db, 'orphaned'), randomUUID()],
    );
    await sendOne(db, { topic: 'orphaned', payload: 'unrung' });
    await bells.heardAll();
    expect(bells.rings, 'nobody rings while a relay is believed to be awake').toEqual([]);
    await untilCount(received, 1, 'deliveries');
  });
});

describe('silence', () => {
  it('P7 a statement rings once, however many messages it sends, and nobody rings while a relay is awake', async () => {
    await startRelay(db, {
      destinations: { quiet: handler(() => undefined) },
      relay: { ...doorbellOnly, batchSize: 10 },
    });
    await untilDoorbell(db, 'quiet', { listening: true, awake: false });
    const bells = await listen(db);
    await send(db, numbered('quiet', 60));
    await bells.heardAll();
    expect(bells.rings).toEqual([String(await destinationId(db, 'quiet'))]);
    await untilDoorbell(db, 'quiet', { awake: true });
    for (let n = 0; n < 20; n += 1) await sendOne(db, { topic: 'quiet' });
    expect(await doorbell(db, 'quiet'), 'still awake').toMatchObject({ awake: true });
    await bells.heardAll();
    expect(bells.rings, 'while awake').toHaveLength(1);
    await untilDoorbell(db, 'quiet', { awake: false });
    await untilPlaces(db, 'quiet', { waiting: 0, leased: 0, delivered: 80 });
    await sendOne(db, { topic: 'quiet' });
    await bells.heardAll();
    expect(bells.rings, 'asleep again').toHaveLength(2);
  });

  it('P7 nobody rings when no relay listens', async () => {
    const relay = await startRelay(db, {
      destinations: { empty: handler(() => undefined) },
    });
    await relay.stop();
    const bells = await listen(db);
    await sendOne(db, { topic: 'empty' });
    await bells.heardAll();
    expect(bells.rings).toEqual([]);
  });
});
