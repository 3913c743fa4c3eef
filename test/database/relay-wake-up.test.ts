// What wakes a relay: the doorbell, the poll, or a time that comes. Each alone is enough, whatever the
// moment at which a producer commits; and while a relay is awake anyway, nobody rings.

import { randomUUID } from 'node:crypto';

import { describe, expect, it, onTestFinished } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { retry } from '../../src/model/outcome.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { enqueueMany, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openWire } from '../support/relay-proxy.js';
import {
  Gate,
  numbered,
  patienceMs,
  places,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import { releaseLease, settle } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const doorbellOnly = { fallbackPollMs: null };

/** Every ring for a destination from now on, in the order of the commits. */
async function listen(): Promise<{ rings: string[]; heardAll(): Promise<void> }> {
  const client = await db.connect();
  onTestFinished(() => client.end());
  const rings: string[] = [];
  const marks = new Set<string>();
  client.on('notification', ({ payload = '' }) => {
    if (payload.startsWith('test ')) marks.add(payload);
    else rings.push(payload);
  });
  const channel = `waybill:${db.schema}`;
  await client.query(`LISTEN ${client.escapeIdentifier(channel)}`);
  return {
    rings,
    // notifications come in the order of the commits: after the mark nothing older is under way
    async heardAll() {
      const mark = `test ${randomUUID()}`;
      await db.query('SELECT pg_notify($1, $2)', [channel, mark]);
      await waitFor(() => marks.has(mark), { what: 'the mark', timeoutMs: patienceMs });
    },
  };
}

type Doorbell = { awake: boolean; listening: boolean };

async function doorbell(destination: string): Promise<Doorbell> {
  const { rows } = await db.query<Doorbell>(
    `SELECT coalesce(bool_or(b.awake_until > clock_timestamp()), false) AS awake,
            coalesce(bool_or(b.listening_until > clock_timestamp()), false) AS listening
       FROM ${db.quoted}.doorbells b JOIN ${db.quoted}.destinations t ON t.id = b.destination_id
      WHERE t.name = $1`,
    [destination],
  );
  return only(rows);
}

async function untilDoorbell(destination: string, wanted: Partial<Doorbell>): Promise<void> {
  await waitFor(
    async () => {
      const seen = await doorbell(destination);
      return Object.entries(wanted).every(([key, value]) => seen[key as keyof Doorbell] === value);
    },
    { what: `${destination} to be ${JSON.stringify(wanted)}`, timeoutMs: patienceMs },
  );
}

/** Waits until the relay waits: the last that it asked the database for is when something will be due. */
async function untilAsleep(): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await db.query<{ asleep: boolean }>(
        `SELECT state = 'idle' AND query LIKE '%.next_due(%' AS asleep FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'waybill relay'
          ORDER BY state_change DESC LIMIT 1`,
      );
      return rows[0]?.asleep;
    },
    { what: 'the relay to sleep' },
  );
}

async function destinationId(name: string): Promise<number> {
  const { rows } = await db.query<{ id: number }>(
    `SELECT id FROM ${db.quoted}.destinations WHERE name = $1`,
    [name],
  );
  return only(rows).id;
}

describe('either alone', () => {
  it('P7 P15 the poll alone drives processing: new messages, scheduled ones and retries', async () => {
    const tries: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        polled: handler(
          (message) => {
            tries.push(message.tries);
            return message.tries === 1 ? retry({ code: 'again' }) : undefined;
          },
          { retry: { delaysMs: [50] } },
        ),
      },
      relay: { listen: false, fallbackPollMs: 20 },
    });
    const { rows } = await db.query(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'waybill listen'`,
    );
    expect(rows, 'no ear').toEqual([]);
    await send(db, [{ topic: 'polled' }, { topic: 'polled', delayMs: 100 }]);
    await untilPlaces(db, 'polled', { waiting: 0, leased: 0, delivered: 2 });
    expect(tries.filter((tried) => tried === 1)).toHaveLength(2);
    expect(tries).toHaveLength(4);
    expect(relay.of('woken')).toEqual([]);
  });

  it('P7 P15 the doorbell alone drives processing', async () => {
    const received: unknown[] = [];
    const relay = await startRelay(db, {
      destinations: { rung: handler((message) => void received.push(message.payload)) },
      relay: doorbellOnly,
    });
    for (let n = 1; n <= 5; n += 1) {
      await sendOne(db, { topic: 'rung', payload: n });
      await untilCount(received, n, 'deliveries');
    }
    expect(received).toEqual([1, 2, 3, 4, 5]);
    expect(relay.of('woken').length).toBeGreaterThan(0);
  });

  it('P7 without a poll a scheduled message comes when it is due, also behind a later one', async () => {
    const received: unknown[] = [];
    await startRelay(db, {
      destinations: { timed: handler((message) => void received.push(message.payload)) },
      relay: doorbellOnly,
    });
    await sendOne(db, { topic: 'timed', payload: 'far', delayMs: 3_600_000 });
    await sendOne(db, { topic: 'timed', payload: 'near', delayMs: 150 });
    await untilCount(received, 1, 'deliveries');
    expect(received).toEqual(['near']);
    expect(await places(db, 'timed')).toMatchObject({ waiting: 1 });
  });

  it('P7 without a poll a retry comes when it is due', async () => {
    await startRelay(db, {
      destinations: {
        retried: handler((message) => (message.tries < 4 ? retry({ code: 'again' }) : undefined), {
          retry: { delaysMs: [100, 0, 60] },
        }),
      },
      relay: doorbellOnly,
    });
    await sendOne(db, { topic: 'retried' });
    await untilPlaces(db, 'retried', { delivered: 1, waiting: 0, leased: 0 });
  });

  it('P7 what was rung while the ear was gone is found when it is back', async () => {
    const received: unknown[] = [];
    const relay = await startRelay(db, {
      destinations: { deaf: handler((message) => void received.push(message.payload)) },
      relay: doorbellOnly,
    });
    await untilDoorbell('deaf', { listening: true });
    await db.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'waybill listen'`,
    );
    await sendOne(db, { topic: 'deaf', payload: 'meanwhile' });
    await untilCount(received, 1, 'deliveries');
    await relay.event('listen_unavailable');
  });
});

describe('a pooler', () => {
  it('P7 that swallows notifications is found out at the start, and the poll takes over', async () => {
    const wire = await openWire(db.url);
    wire.deaf = true;
    const received: unknown[] = [];
    const relay = await startRelay(db, {
      destinations: { pooled: handler((message) => void received.push(message.payload)) },
      relay: { fallbackPollMs: 50 },
      database: { directUrl: wire.url },
    });
    expect(relay.of('listen_unavailable')[0]?.reason).toMatch(/pooler.*directUrl/);
    expect(await doorbell('pooled'), 'nobody rings in vain').toMatchObject({ listening: false });
    await sendOne(db, { topic: 'pooled', payload: 1 });
    await untilCount(received, 1, 'deliveries');
    // once notifications pass, it listens by itself
    wire.deaf = false;
    await untilDoorbell('pooled', { listening: true });
  });
});

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
    const bells = await listen();
    await Promise.all(
      names.map(async (name) => {
        await send(db, numbered(name, 60));
        await untilDoorbell(name, { awake: true });
        const producers = await Promise.all([db.connect(), db.connect(), db.connect()]);
        const late: string[] = [];
        for (const producer of producers) {
          await producer.query('BEGIN');
          late.push(only(await enqueueMany(db, producer, [{ topic: name }])).id);
        }
        await untilDoorbell(name, { awake: false });
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
    const ids = await Promise.all(names.map(destinationId));
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
        await untilDoorbell(name, { awake: true });
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
    await untilAsleep();
    const bells = await listen();
    await db.query(
      `INSERT INTO ${db.quoted}.doorbells (destination_id, relay_id, listening_until, awake_until)
       VALUES ($1, $2, clock_timestamp() + interval '400 ms', clock_timestamp() + interval '400 ms')`,
      [await destinationId('orphaned'), randomUUID()],
    );
    await sendOne(db, { topic: 'orphaned', payload: 'unrung' });
    await bells.heardAll();
    expect(bells.rings, 'nobody rings while a relay is believed to be awake').toEqual([]);
    await untilCount(received, 1, 'deliveries');
  });
});

describe('between relays', () => {
  it('P7 a dead relay that is noticed by one with a filter leaves no message behind for the others', async () => {
    const received: unknown[] = [];
    const destinations = { noticed: handler((message) => void received.push(message.payload)) };
    await startRelay(db, { destinations, relay: { ...doorbellOnly, reapMs: 10_000 } });
    await untilAsleep();
    await db.query(
      `INSERT INTO ${db.quoted}.doorbells (destination_id, relay_id, listening_until, awake_until)
       VALUES ($1, $2, clock_timestamp() + interval '1 second', clock_timestamp() + interval '1 second')`,
      [await destinationId('noticed'), randomUUID()],
    );
    await sendOne(db, { topic: 'noticed', payload: 'unrung' });
    await startRelay(db, { destinations, relay: { reapMs: 20, tenantIds: ['nobody'] } });
    await untilCount(received, 1, 'deliveries');
  });

  it('P7 what a relay gives back when it stops is taken up by one that sleeps', async () => {
    const gate = new Gate();
    onTestFinished(() => gate.open());
    const received: string[] = [];
    const settings = { retry: { delaysMs: [100] }, concurrency: 1 };
    const first = await startRelay(db, {
      destinations: { handed: handler(() => gate.pass(), settings) },
      relay: { ...doorbellOnly, stopDeadlineMs: 300 },
    });
    const ids = await send(db, numbered('handed', 5));
    await untilPlaces(db, 'handed', { leased: 5 });
    await startRelay(db, {
      destinations: { handed: handler((message) => void received.push(message.id), settings) },
      relay: doorbellOnly,
    });
    await first.stop();
    await untilCount(received, 5, 'deliveries');
    expect(received.toSorted()).toEqual(ids.toSorted());
  });

  it.each<['a retry' | 'a release']>([['a retry'], ['a release']])(
    'P7 %s that another worker records and leaves behind is found by a relay that sleeps',
    async (what) => {
      const name = what.replace(' ', '-');
      const received: string[] = [];
      // the other worker has it before the relay is there
      const queue = new Queue(db, name, await defineDestination(db, name));
      await addRoute(db, queue.id, name);
      const id = await queue.enqueueOne();
      const claim = await queue.claimOne();
      await startRelay(db, {
        destinations: { [name]: handler((message) => void received.push(message.id)) },
        relay: doorbellOnly,
      });
      await untilAsleep();
      if (what === 'a release') await releaseLease(db, claim);
      else await settle(db, claim, [{ id, claimNo: 1, outcome: 'retry', retryAfterMs: 200 }]);
      await untilCount(received, 1, 'deliveries');
    },
  );
});

describe('silence', () => {
  it('P7 a statement rings once, however many messages it sends, and nobody rings while a relay is awake', async () => {
    await startRelay(db, {
      destinations: { quiet: handler(() => undefined) },
      relay: { ...doorbellOnly, batchSize: 10 },
    });
    await untilDoorbell('quiet', { listening: true, awake: false });
    const bells = await listen();
    await send(db, numbered('quiet', 60));
    await bells.heardAll();
    expect(bells.rings).toEqual([String(await destinationId('quiet'))]);
    await untilDoorbell('quiet', { awake: true });
    for (let n = 0; n < 20; n += 1) await sendOne(db, { topic: 'quiet' });
    expect(await doorbell('quiet'), 'still awake').toMatchObject({ awake: true });
    await bells.heardAll();
    expect(bells.rings, 'while awake').toHaveLength(1);
    await untilDoorbell('quiet', { awake: false });
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
    const bells = await listen();
    await sendOne(db, { topic: 'empty' });
    await bells.heardAll();
    expect(bells.rings).toEqual([]);
  });
});
