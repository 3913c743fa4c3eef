// The protocol of becoming idle, from the relay's side: which state it reports to producers, and in which order.

import { describe, expect, it, vi } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { resolveRelayOptions } from '../../src/relay/options.js';
import { PollSchedule } from '../../src/relay/wakeup/poll-schedule.js';
import { WakeUp } from '../../src/relay/wakeup/wake-up.js';

type Call = { what: string; activeMs?: number; answer(rows: object[]): void };

/** A database whose answers the test gives one by one. */
function handDatabase(): { database: Database; calls: Call[] } {
  const calls: Call[] = [];
  const query = (what: string, _sql: string, values: unknown[] = []): Promise<object[]> =>
    new Promise((answer) => {
      const [, , activeMs] = values;
      calls.push({ what, answer, ...(typeof activeMs === 'number' && { activeMs }) });
    });
  return { database: { schema: 'outbox', query } as unknown as Database, calls };
}

function makeWakeUp(database: Database, tenantIds?: string[], pollMs?: number): WakeUp {
  return new WakeUp({
    work: database,
    control: database,
    relayId: 'relay',
    relay: resolveRelayOptions({
      fallbackPollMs: null,
      ...(tenantIds && { tenantIds }),
      ...(pollMs && { pollMs }),
    }),
    emit: () => {},
  });
}

async function turn(): Promise<void> {
  await new Promise(setImmediate);
}

describe('the schedule', () => {
  it("P7 two reports of the relay's state are sent one after the other: the older never arrives last", async () => {
    const { database, calls } = handDatabase();
    const wakeUp = makeWakeUp(database);
    const schedule = new PollSchedule(1, wakeUp);
    void wakeUp.register(schedule);
    await turn();
    void wakeUp.register(schedule);
    await turn();
    expect(calls).toHaveLength(1);
    calls[0]?.answer([]);
    await turn();
    expect(calls).toHaveLength(2);
  });

  it('P7 a report that failed does not hold back the next one', async () => {
    let asked = 0;
    const database = {
      schema: 'outbox',
      query: () => {
        asked += 1;
        return asked === 1 ? Promise.reject(new Error('away')) : Promise.resolve([]);
      },
    } as unknown as Database;
    const wakeUp = makeWakeUp(database);
    const schedule = new PollSchedule(1, wakeUp);
    const first = wakeUp.register(schedule).catch((error: unknown) => (error as Error).message);
    await turn();
    const second = wakeUp.register(schedule);
    expect(await first).toBe('away');
    await second;
    expect(asked).toBe(2);
  });

  it.each([
    ['suppresses notifications', undefined, [15_000]],
    ['leaves notifications on when the relay serves only some tenants', ['acme'], [0]],
  ])('P7 much work %s', async (_what, tenantIds, activeMs) => {
    const { database, calls } = handDatabase();
    const schedule = new PollSchedule(1, makeWakeUp(database, tenantIds));
    schedule.found(10, true, 1);
    schedule.found(10, true, 1);
    void schedule.wait();
    await turn();
    expect(calls.map(({ what }) => what)).toEqual(['register listener']);
    expect(calls.map((call) => call.activeMs)).toEqual(activeMs);
  });

  it.each([
    ['a quick claim', undefined, 0.5, 2],
    ['a slower claim', undefined, 3, 3],
    ['a slow claim', undefined, 80, 5],
    ['the option pollMs', 30, 0.5, 30],
  ])(
    'P7 while active, the rest between two claims follows %s',
    async (_what, pollMs, claimMs, restMs) => {
      vi.useFakeTimers();
      const { database, calls } = handDatabase();
      const schedule = new PollSchedule(1, makeWakeUp(database, undefined, pollMs));
      for (let n = 0; n < 50; n += 1) schedule.found(10, true, claimMs);
      const active = schedule.wait();
      await vi.advanceTimersByTimeAsync(0);
      calls[0]?.answer([]);
      await active;
      const startedMs = performance.now();
      const rested = schedule.wait();
      await vi.advanceTimersToNextTimerAsync();
      await rested;
      expect(Math.round(performance.now() - startedMs)).toBe(restMs);
      vi.useRealTimers();
    },
  );

  it('P7 a wake-up during a query is not missed by the wait that follows', async () => {
    const { database, calls } = handDatabase();
    const schedule = new PollSchedule(1, makeWakeUp(database));
    schedule.beforeClaim();
    schedule.wake();
    const waited = schedule.wait();
    await turn();
    calls[0]?.answer([]);
    // with nothing due and no poll, only the wake-up can end it
    await waited;
  });
});
