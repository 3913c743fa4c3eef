// The protocol of becoming idle, from the relay's side: which state it reports to producers, and in which order.

import { describe, expect, it } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { ListenerRegistry } from '../../src/relay/wakeup/listener-registry.js';
import { DuePoller } from '../../src/relay/wakeup/due-poller.js';
import { PollSchedule } from '../../src/relay/wakeup/poll-schedule.js';

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

function makeSchedule(database: Database, maySilence = true): PollSchedule {
  const isListening = () => true;
  const emit = () => {};
  return new PollSchedule({
    database,
    destinationId: 1,
    pollMs: 5,
    maySilence,
    listeners: new ListenerRegistry(database, 'relay', isListening),
    duePoller: new DuePoller({ database, fallbackPollMs: null, maySilence, isListening, emit }),
  });
}

async function turn(): Promise<void> {
  await new Promise(setImmediate);
}

describe('the schedule', () => {
  it("P7 two reports of the relay's state are sent one after the other: the older never arrives last", async () => {
    const { database, calls } = handDatabase();
    const schedule = makeSchedule(database);
    void schedule.register();
    await turn();
    void schedule.register();
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
    const schedule = makeSchedule(database);
    const first = schedule.register().catch((error: unknown) => (error as Error).message);
    await turn();
    const second = schedule.register();
    expect(await first).toBe('away');
    await second;
    expect(asked).toBe(2);
  });

  it.each([
    [true, 'suppresses notifications', [15_000]],
    [false, 'leaves notifications on when the relay serves only some tenants', [0]],
  ])('P7 much work (%j) %s', async (maySilence, _what, activeMs) => {
    const { database, calls } = handDatabase();
    const schedule = makeSchedule(database, maySilence);
    schedule.found(10, true);
    schedule.found(10, true);
    void schedule.wait();
    await turn();
    expect(calls.map(({ what }) => what)).toEqual(['register listener']);
    expect(calls.map((call) => call.activeMs)).toEqual(activeMs);
  });

  it('P7 a wake-up during a query is not missed by the wait that follows', async () => {
    const { database, calls } = handDatabase();
    const schedule = makeSchedule(database);
    schedule.beforeClaim();
    schedule.wake();
    const waited = schedule.wait();
    await turn();
    calls[0]?.answer([]);
    // with nothing due and no poll, only the wake-up can end it
    await waited;
  });
});
