// What wakes a relay: a notification, a poll, or a due time. Each alone is enough.

import { randomUUID } from 'node:crypto';

import { describe, expect, it, onTestFinished } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { retry } from '../../src/core/outcome.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { destinationId, listenerState, untilIdle, untilListener } from '../support/listeners.js';
import { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openWire } from '../support/relay-proxy.js';
import {
  Gate,
  numbered,
  places,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import { releaseLease, settle } from '../support/settling.js';

const db = testDatabase();

const notificationsOnly = { fallbackPollMs: null };

describe('either alone', () => {
  it('P7 P15 polling alone drives processing: new messages, scheduled ones and retries', async () => {
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
    expect(rows, 'no listener').toEqual([]);
    await send(db, [{ topic: 'polled' }, { topic: 'polled', delayMs: 100 }]);
    await untilPlaces(db, 'polled', { waiting: 0, leased: 0, delivered: 2 });
    expect(tries.filter((tried) => tried === 1)).toHaveLength(2);
    expect(tries).toHaveLength(4);
    expect(relay.of('woken')).toEqual([]);
  });

  it('P7 P15 notifications alone drive processing', async () => {
    const received: unknown[] = [];
    const relay = await startRelay(db, {
      destinations: { notified: handler((message) => void received.push(message.payload)) },
      relay: notificationsOnly,
    });
    for (let n = 1; n <= 5; n += 1) {
      await sendOne(db, { topic: 'notified', payload: n });
      await untilCount(received, n, 'deliveries');
    }
    expect(received).toEqual([1, 2, 3, 4, 5]);
    expect(relay.of('woken').length).toBeGreaterThan(0);
  });

  it('P7 without polling a scheduled message is delivered when it is due, also behind a later one', async () => {
    const received: unknown[] = [];
    await startRelay(db, {
      destinations: { timed: handler((message) => void received.push(message.payload)) },
      relay: notificationsOnly,
    });
    await sendOne(db, { topic: 'timed', payload: 'far', delayMs: 3_600_000 });
    await sendOne(db, { topic: 'timed', payload: 'near', delayMs: 150 });
    await untilCount(received, 1, 'deliveries');
    expect(received).toEqual(['near']);
    expect(await places(db, 'timed')).toMatchObject({ waiting: 1 });
  });

  it('P7 without polling a retry is delivered when it is due', async () => {
    await startRelay(db, {
      destinations: {
        retried: handler((message) => (message.tries < 4 ? retry({ code: 'again' }) : undefined), {
          retry: { delaysMs: [100, 0, 60] },
        }),
      },
      relay: notificationsOnly,
    });
    await sendOne(db, { topic: 'retried' });
    await untilPlaces(db, 'retried', { delivered: 1, waiting: 0, leased: 0 });
  });

  it('P7 messages whose notification was lost while the listener was disconnected are found when it is back', async () => {
    const received: unknown[] = [];
    const relay = await startRelay(db, {
      destinations: { deaf: handler((message) => void received.push(message.payload)) },
      relay: notificationsOnly,
    });
    await untilListener(db, 'deaf', { listening: true });
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
  it('P7 that drops notifications is detected at the start, and polling takes over', async () => {
    const wire = await openWire(db.url);
    wire.deaf = true;
    const received: unknown[] = [];
    const relay = await startRelay(db, {
      destinations: { pooled: handler((message) => void received.push(message.payload)) },
      relay: { fallbackPollMs: 10 },
      database: { directUrl: wire.url },
    });
    expect(relay.of('listen_unavailable')[0]?.reason).toMatch(/pooler.*directUrl/);
    expect(await listenerState(db, 'pooled'), 'no notification is sent in vain').toMatchObject({
      listening: false,
    });
    await sendOne(db, { topic: 'pooled', payload: 1 });
    await untilCount(received, 1, 'deliveries');
    // once notifications pass, it listens by itself
    wire.deaf = false;
    await untilListener(db, 'pooled', { listening: true });
  });
});

describe('between relays', () => {
  it('P7 a dead relay that is noticed by one with a filter leaves no message behind for the others', async () => {
    const received: unknown[] = [];
    const destinations = { noticed: handler((message) => void received.push(message.payload)) };
    await startRelay(db, { destinations, relay: { ...notificationsOnly, reapMs: 10_000 } });
    await untilIdle(db);
    await db.query(
      `INSERT INTO ${db.quoted}.listeners (destination_id, relay_id, listening_until, active_until)
       VALUES ($1, $2, clock_timestamp() + interval '1 second', clock_timestamp() + interval '1 second')`,
      [await destinationId(db, 'noticed'), randomUUID()],
    );
    await sendOne(db, { topic: 'noticed', payload: 'unrung' });
    await startRelay(db, { destinations, relay: { reapMs: 20, tenantIds: ['unknown'] } });
    await untilCount(received, 1, 'deliveries');
  });

  it('P7 deliveries that a stopping relay releases are claimed by an idle one', async () => {
    const gate = new Gate();
    onTestFinished(() => gate.open());
    const received: string[] = [];
    const settings = { retry: { delaysMs: [100] }, concurrency: 1 };
    const first = await startRelay(db, {
      destinations: { handed: handler(() => gate.pass(), settings) },
      relay: { ...notificationsOnly, stopDeadlineMs: 300 },
    });
    const ids = await send(db, numbered('handed', 5));
    await untilPlaces(db, 'handed', { leased: 5 });
    await startRelay(db, {
      destinations: { handed: handler((message) => void received.push(message.id), settings) },
      relay: notificationsOnly,
    });
    await first.stop();
    await untilCount(received, 5, 'deliveries');
    expect(received.toSorted()).toEqual(ids.toSorted());
  });

  it.each<['a retry' | 'a release']>([['a retry'], ['a release']])(
    'P7 %s that another worker records and leaves behind is found by an idle relay',
    async (what) => {
      const name = what.replace(' ', '-');
      const received: string[] = [];
      // the other worker has it before the relay starts
      const queue = new Queue(db, name, await defineDestination(db, name));
      await addRoute(db, queue.id, name);
      const id = await queue.enqueueOne();
      const claim = await queue.claimOne();
      await startRelay(db, {
        destinations: { [name]: handler((message) => void received.push(message.id)) },
        relay: notificationsOnly,
      });
      await untilIdle(db);
      if (what === 'a release') await releaseLease(db, claim);
      else await settle(db, claim, [{ id, claimNo: 1, outcome: 'retry', retryAfterMs: 200 }]);
      await untilCount(received, 1, 'deliveries');
    },
  );
});
