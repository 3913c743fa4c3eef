// Stopping a relay: calls in flight finish, unsent messages are released without a try, and all of it within the
// deadline, whatever hangs.

import { describe, expect, it, onTestFinished } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import type { SingleDestination } from '../../src/destinations/destination.js';
import { environmentOf, packageUrl, runNode } from '../support/cli.js';
import { only } from '../support/only.js';
import { misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openWire } from '../support/relay-proxy.js';
import type { Wire } from '../support/relay-proxy.js';
import {
  attemptsOf,
  Gate,
  makeRelay,
  Meter,
  numbered,
  places,
  send,
  sendOne,
  startRelay,
  untilPlaces,
} from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const deadlineMs = 600;
/** The time that a loaded machine may add to a deadline, and the second for the last report to the database. */
const graceMs = 2500;

async function stopMs(relay: { stop(): Promise<void> }): Promise<number> {
  const startedMs = performance.now();
  await relay.stop();
  return performance.now() - startedMs;
}

describe('a stop', () => {
  it('M12 M6 finishes calls in flight and releases unsent messages, which costs no try', async () => {
    const gate = new Gate();
    const meter = new Meter();
    onTestFinished(() => gate.open());
    const relay = await startRelay(db, {
      destinations: {
        graceful: handler(() => meter.during(() => gate.pass()), { concurrency: 2 }),
      },
      relay: { stopDeadlineMs: 20_000 },
    });
    const ids = await send(db, numbered('graceful', 10));
    await untilPlaces(db, 'graceful', { leased: 10 });
    await waitFor(() => meter.now === 2, { what: 'two deliveries in flight' });
    const stopped = relay.stop();
    // queued messages are released at once; calls in flight are awaited
    await untilPlaces(db, 'graceful', { waiting: 8, leased: 2 });
    expect(meter.now).toBe(2);
    gate.open();
    await stopped;
    expect(meter.total, 'nothing was sent after the stop').toBe(2);
    expect(await places(db, 'graceful')).toMatchObject({ delivered: 2, waiting: 8, leased: 0 });
    const attempts = await Promise.all(ids.map((id) => attemptsOf(db, id, 'graceful')));
    expect(
      attempts
        .map((rows) => only(rows))
        .map(({ state, tries, claim_no }) => `${state} ${tries} ${claim_no}`)
        .toSorted(),
    ).toEqual([
      ...Array.from({ length: 2 }, () => 'dispatched 1 1'),
      ...Array.from({ length: 8 }, () => 'released 0 1'),
    ]);
    expect(await misplaced(db)).toEqual([]);
    // the next relay delivers them, and counts its first try as the first
    await startRelay(db, { destinations: { graceful: handler(() => undefined) } });
    await untilPlaces(db, 'graceful', { delivered: 10, waiting: 0 });
    const { rows } = await db.query<{ tries: number; claim_no: number }>(
      `SELECT tries, claim_no FROM ${db.quoted}.attempts WHERE message_id = ANY ($1) AND state = 'dispatched' AND claim_no > 1`,
      [ids],
    );
    expect(rows).toEqual(Array.from({ length: 8 }, () => ({ tries: 1, claim_no: 2 })));
  });

  it('M12 ends within the deadline although a handler hangs, and holds nothing afterwards', async () => {
    const signals: AbortSignal[] = [];
    const relay = await startRelay(db, {
      destinations: {
        stubborn: handler(
          (_message, { signal }) => {
            signals.push(signal);
            return new Promise(() => {});
          },
          { concurrency: 1, retry: { delaysMs: [3_600_000] } },
        ),
      },
      relay: { stopDeadlineMs: deadlineMs },
    });
    const ids = await send(db, numbered('stubborn', 3));
    await untilPlaces(db, 'stubborn', { leased: 3 });
    await waitFor(() => signals.length === 1, { what: 'the delivery' });
    expect(await stopMs(relay)).toBeLessThan(deadlineMs + graceMs);
    expect(signals.map((signal) => signal.aborted)).toEqual([true]);
    expect(await places(db, 'stubborn')).toMatchObject({ waiting: 3, leased: 0 });
    // it may have arrived: that is a try, with a code for the reason
    const states = await Promise.all(
      ids.map(async (id) => {
        const { state, tries, error_code } = only(await attemptsOf(db, id, 'stubborn'));
        return `${state} ${tries} ${error_code}`;
      }),
    );
    expect(states.toSorted()).toEqual([
      'released 0 null',
      'released 0 null',
      'retryable 1 stopped',
    ]);
  });

  it('M12 keeps recording deliveries until the database accepts them', async () => {
    const gate = new Gate();
    onTestFinished(() => gate.open());
    const relay = await startRelay(db, {
      destinations: { recorded: handler(() => gate.pass()) },
      relay: { stopDeadlineMs: 20_000 },
      database: { lockTimeoutMs: 100 },
    });
    await sendOne(db, { topic: 'recorded' });
    await waitFor(() => gate.waiting === 1, { what: 'the delivery' });
    const blocker = await db.connect();
    await blocker.query('BEGIN');
    await blocker.query(`SELECT FROM ${db.quoted}.leases FOR UPDATE`);
    const stopped = relay.stop();
    gate.open();
    await relay.event('trouble', ({ what }) => what === 'settle');
    await blocker.query('ROLLBACK');
    await stopped;
    expect(await places(db, 'recorded')).toMatchObject({ delivered: 1, waiting: 0, leased: 0 });
  });

  it('M12 ends within the deadline although the database does not answer', async () => {
    const relay = await startRelay(db, {
      destinations: { blocked: handler(() => undefined) },
      relay: { stopDeadlineMs: deadlineMs },
    });
    const blocker = await db.connect();
    await blocker.query('BEGIN');
    await blocker.query(
      `LOCK TABLE ${db.quoted}.listeners, ${db.quoted}.relays, ${db.quoted}.deliveries IN ACCESS EXCLUSIVE MODE`,
    );
    const tookMs = await stopMs(relay);
    await blocker.query('ROLLBACK');
    expect(tookMs).toBeLessThan(deadlineMs + graceMs);
  });

  it('M12 ends within the deadline although a destination does not close', async () => {
    const endless: SingleDestination = {
      ...handler(() => undefined),
      close: () => new Promise(() => {}),
    };
    const relay = await startRelay(db, {
      destinations: { endless },
      relay: { stopDeadlineMs: deadlineMs },
    });
    expect(await stopMs(relay)).toBeLessThan(deadlineMs + graceMs);
    expect(relay.of('relay_stopped')).toHaveLength(1);
  });

  it.each([
    [
      'was lost',
      (wire: Wire) => wire.loseAnswerWith('the message itself'),
      (wire: Wire) => wire.lost,
    ],
    [
      'is still missing',
      (wire: Wire) => wire.holdAnswerWith('the message itself'),
      (wire: Wire) => wire.held,
    ],
  ])(
    'M12 M6 releases a claim that it does not know of, whose response %s',
    async (what, cut, done) => {
      const name = what.replaceAll(' ', '-');
      const wire = await openWire(db.url);
      const delivered: string[] = [];
      const relay = await startRelay(db, {
        destinations: { [name]: handler((message) => void delivered.push(message.id)) },
        database: { url: wire.url, directUrl: db.url },
        relay: { stopDeadlineMs: deadlineMs, fallbackPollMs: 10_000 },
      });
      cut(wire);
      const id = await sendOne(db, { topic: name, payload: 'the message itself' });
      await waitFor(() => done(wire) > 0, { what: 'the response to be lost' });
      expect(await places(db, name)).toMatchObject({ leased: 1 });
      expect(await stopMs(relay)).toBeLessThan(deadlineMs + graceMs);
      expect(await places(db, name)).toMatchObject({ leased: 0, waiting: 1, delivered: 0 });
      expect(delivered).toEqual([]);
      expect(await attemptsOf(db, id, name)).toMatchObject([{ state: 'released', tries: 0 }]);
    },
  );

  it('M12 is quick when there is nothing to do, and a second call has no effect', async () => {
    const relay = await startRelay(db, {
      destinations: { idle: handler(() => undefined) },
      relay: { stopDeadlineMs: 20_000 },
    });
    await sendOne(db, { topic: 'idle' });
    await untilPlaces(db, 'idle', { delivered: 1 });
    const startedMs = performance.now();
    await Promise.all([relay.stop(), relay.stop()]);
    expect(performance.now() - startedMs).toBeLessThan(3000);
    expect(relay.of('relay_stopped')).toHaveLength(1);
  });

  it('opens and closes each destination once, with the last delivery before the close', async () => {
    const story: string[] = [];
    const told: SingleDestination = {
      ...handler(() => void story.push('deliver')),
      open: () => void story.push('open'),
      close: () => void story.push('close'),
    };
    const relay = await startRelay(db, { destinations: { told } });
    await sendOne(db, { topic: 'told' });
    await untilPlaces(db, 'told', { delivered: 1 });
    await relay.stop();
    expect(story).toEqual(['open', 'deliver', 'close']);
  });
});

describe('a start that fails', () => {
  it('leaves no connection behind', async () => {
    const broken: SingleDestination = {
      ...handler(() => undefined),
      open: () => Promise.reject(new Error('no such broker')),
    };
    const made = makeRelay(db, { destinations: { broken } });
    await expect(made.relay.start()).rejects.toThrow('no such broker');
    await waitFor(
      async () => {
        const { rows } = await db.query(
          `SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'waybill%'`,
        );
        return rows.length === 0;
      },
      { what: 'the connections to be closed' },
    );
  });
});

describe('the process', () => {
  it('M12 ends by itself after a stop: no timer, socket or connection is left open', async () => {
    const script = `
      import { createServer } from 'node:http';
      import { createOutbox, createRelay, handler, batchHandler, webhook } from ${JSON.stringify(packageUrl)};
      const { DATABASE_URL: url, WAYBILL_SCHEMA: schema } = process.env;
      const server = createServer((request, response) => { request.resume(); response.end(); });
      await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
      let delivered = 0;
      let allDelivered;
      const all = new Promise((resolve) => (allDelivered = resolve));
      const relay = createRelay({
        database: { url, schema },
        destinations: {
          'child-one': handler(async (message, { signal }) => void signal.aborted),
          'child-batch': batchHandler(async () => undefined),
          'child-hook': webhook({ url: 'http://127.0.0.1:' + server.address().port + '/', allowedNetworks: ['127.0.0.0/8'] }),
        },
        routes: ['child-one', 'child-batch', 'child-hook'].map((to) => ({ topic: 'child', to })),
        onEvent: (event) => {
          if (event.name === 'settled' && (delivered += event.counts.delivered) === 3) allDelivered();
        },
      });
      await relay.start();
      const { default: pg } = await import(${JSON.stringify(import.meta.resolve('pg'))});
      const client = new pg.Client(url);
      await client.connect();
      await createOutbox({ schema }).enqueue(client, { topic: 'child' }, { autonomous: true });
      await client.end();
      await all;
      await relay.stop();
      server.closeAllConnections();
      server.close();
      console.log('stopped');
    `;
    const child = runNode(['--input-type=module', '-e', script], {
      environment: environmentOf(db),
    });
    const { code, stdout, stderr } = await child.ended(20_000);
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'stopped\n', stderr: '' });
  });
});
