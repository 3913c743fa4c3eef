// A destination that fails too often is not called: nothing is claimed, no try is used, and a probe finds out when it
// has recovered.

import { describe, expect, it } from 'vitest';

import { readDestinations, readHealth } from '../../src/listing/reports.js';
import { handler } from '../../src/destinations/handler.js';
import { delivered, retry } from '../../src/core/outcome.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { only } from '../support/only.js';
import { misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import {
  Gate,
  makeRelay,
  numbered,
  openDatabase,
  places,
  send,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import type { EventOf } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const numberOf = (message: { payload: unknown }) => (message.payload as { n: number }).n;
const down = () => retry({ code: 'http_status', remoteCode: '503', afterMs: 1 });

async function breakersOf(name: string) {
  const found = await readDestinations(openDatabase(db));
  return only(found.filter((destination) => destination.name === name)).breakers;
}

function isClaim(event: RelayEvent): event is EventOf<'claimed'> {
  return event.name === 'claimed';
}

/** How often each message of a destination has been sent. */
async function triesOf(name: string): Promise<number[]> {
  const { rows } = await db.query<{ tries: number }>(
    `SELECT d.tries FROM ${db.quoted}.deliveries d JOIN ${db.quoted}.destinations t ON t.id = d.destination_id
      WHERE t.name = $1 ORDER BY d.tries DESC`,
    [name],
  );
  return rows.map(({ tries }) => tries);
}

describe('a breaker', () => {
  it('P9 opens after failures: pending deliveries wait and use no try, it is shown, and a probe closes it', async () => {
    let failing = true;
    let calls = 0;
    const relay = await startRelay(db, {
      destinations: {
        flaky: handler(
          () => {
            calls += 1;
            return failing ? down() : delivered();
          },
          { concurrency: 1, breaker: { failures: 5, openMs: 1000 } },
        ),
      },
      relay: { name: 'paris-1' },
    });
    await send(db, numbered('flaky', 40));
    const { because, failures } = await relay.event('breaker_opened');
    expect({ because, failures }).toEqual({ because: 'failures', failures: 5 });
    await untilPlaces(db, 'flaky', { waiting: 40, leased: 0 });
    expect(calls).toBe(5);
    expect((await triesOf('flaky')).reduce((sum, tries) => sum + tries, 0)).toBe(5);
    await waitFor(async () => (await breakersOf('flaky'))[0], { what: 'the breaker to be shown' });
    expect(await breakersOf('flaky')).toMatchObject([
      { relay: 'paris-1', state: 'open', failures: 5 },
    ]);
    const health = await readHealth(openDatabase(db));
    expect(health.find(({ metric }) => metric === 'open_breakers')).toMatchObject({
      value: 1,
      alarm: expect.stringContaining('flaky at paris-1') as string,
    });

    // the probe fails: one call, and twice the pause
    const again = await relay.event('breaker_opened', (event) => event.because === 'probe');
    expect(again.forMs).toBe(2000);
    expect(calls).toBe(6);
    const claims = relay.events.slice(0, relay.events.indexOf(again)).filter(isClaim);
    expect(claims.at(-1)?.count).toBe(1);
    failing = false;
    await relay.event('breaker_closed');
    await untilPlaces(db, 'flaky', { waiting: 0, leased: 0, delivered: 40, dead: 0 });
    await waitFor(async () => (await breakersOf('flaky')).length === 0, {
      what: 'the breaker to be shown as closed',
    });
    expect(calls).toBe(46);
    expect(await misplaced(db)).toEqual([]);
  });

  it('P9 keeps the order of keys, whose head may be the probe', async () => {
    let failing = true;
    const received: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        keyed: handler(
          (message) => {
            if (failing) return down();
            received.push(numberOf(message));
            return delivered();
          },
          { breaker: { failures: 1, openMs: 50, maxOpenMs: 50 } },
        ),
      },
    });
    await send(db, numbered('keyed', 10, { key: 'one' }));
    await relay.event('breaker_opened', ({ because }) => because === 'probe');
    failing = false;
    await untilPlaces(db, 'keyed', { waiting: 0, leased: 0, delivered: 10 });
    expect(received).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });

  it('P9 P2 does not hold the rest of a lane whose call succeeds while it is open', async () => {
    const gate = new Gate();
    let failing = true;
    const received: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        late: handler(
          async (message) => {
            if (numberOf(message) === 3 && failing) return down();
            if (numberOf(message) === 1) await gate.pass();
            received.push(numberOf(message));
            return delivered();
          },
          { breaker: { failures: 1, openMs: 500, maxOpenMs: 500 } },
        ),
      },
    });
    await send(db, numbered('late', 2, { key: 'one' }));
    await waitFor(() => gate.waiting === 1, { what: 'the first call of the lane' });
    await send(db, [{ topic: 'late', payload: { n: 3 } }]);
    await relay.event('breaker_opened');
    failing = false;
    gate.open();
    await relay.event('breaker_closed');
    await untilPlaces(db, 'late', { waiting: 0, leased: 0, delivered: 3 });
    expect(received.filter((n) => n < 3)).toEqual([1, 2]);
  });

  it('P9 sends a probe although calls hang since before it opened', async () => {
    const gate = new Gate();
    let failing = true;
    const received: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        hanging: handler(
          async (message) => {
            if (numberOf(message) === 1 && failing) await gate.pass();
            if (failing) return down();
            received.push(numberOf(message));
            return delivered();
          },
          { concurrency: 2, breaker: { failures: 2, openMs: 50, maxOpenMs: 50 } },
        ),
      },
    });
    await send(db, numbered('hanging', 10));
    await relay.event('breaker_opened');
    failing = false;
    await relay.event('breaker_closed');
    await untilPlaces(db, 'hanging', { waiting: 0, leased: 1, delivered: 9 });
    gate.open();
    await untilPlaces(db, 'hanging', { waiting: 0, leased: 0, delivered: 10 });
  });

  it('P9 makes a drain end early, with a report that it did not finish', async () => {
    const settings = {
      destinations: {
        drained: handler(down, { concurrency: 1, breaker: { failures: 3, openMs: 60_000 } }),
      },
    };
    const first = await startRelay(db, settings);
    await first.stop();
    await send(db, numbered('drained', 20));
    const { relay } = makeRelay(db, settings);
    const startedMs = performance.now();
    const report = await relay.drain({ maxMs: 15_000, maxMessages: 1000 });
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    expect(report).toMatchObject({ succeeded: 0, failed: 3, finished: false });
    expect(await places(db, 'drained')).toMatchObject({ waiting: 20, leased: 0 });
  });

  it('P9 loses nothing, however often it opens and closes', async () => {
    let calls = 0;
    const relay = await startRelay(db, {
      destinations: {
        wavering: handler(
          async () => {
            calls += 1;
            const failing = Math.floor(calls / 25) % 2 === 0;
            await new Promise(setImmediate);
            return failing ? down() : delivered();
          },
          {
            concurrency: 5,
            retry: { maxAttempts: 1000 },
            breaker: { failures: 3, openMs: 10, maxOpenMs: 10 },
          },
        ),
      },
    });
    await send(db, numbered('wavering', 400));
    await untilPlaces(db, 'wavering', { waiting: 0, leased: 0, delivered: 400, dead: 0 });
    expect(relay.of('breaker_closed').length).toBeGreaterThan(3);
  });

  it('P9 does not affect other destinations of the relay', async () => {
    const received: number[] = [];
    const relay = await startRelay(db, {
      destinations: {
        broken: handler(down, { breaker: { failures: 1, openMs: 60_000 } }),
        fine: handler((message) => void received.push(numberOf(message))),
      },
    });
    await send(db, numbered('broken', 5));
    await relay.event('breaker_opened');
    await send(db, numbered('fine', 20));
    await untilCount(received, 20, 'messages');
  });

  it.each([
    [{ mode: 'stream', breaker: {} }, 'has a breaker, and its mode is "stream"'],
    [{ mode: 'stream', whenDead: 'park' }, 'has whenDead "park", and its mode is "stream"'],
    [{ mode: 'stream', fairness: 'tenant' }, 'has fairness "tenant", and its mode is "stream"'],
    [{ from: 'beginning' }, 'has from "beginning", and its mode is "deliver"'],
  ] as const)(
    'is refused where it would be ignored, like other settings: %j',
    (settings, words) => {
      const river = handler(() => undefined, settings);
      expect(() => makeRelay(db, { destinations: { river } })).toThrow(
        `config.destinations.river ${words}`,
      );
    },
  );
});
