// The protocol of falling asleep, seen from the relay's side: what producers are told, and in which order.

import { describe, expect, it } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { Doorbells } from '../../src/relay/doorbells.js';
import { Lookout } from '../../src/relay/lookout.js';
import { Sleeper } from '../../src/relay/sleeper.js';

type Call = { what: string; awakeMs?: number; answer(rows: object[]): void };

/** A database whose answers the test gives, one by one. */
function handDatabase(): { database: Database; calls: Call[] } {
  const calls: Call[] = [];
  const query = (what: string, _sql: string, values: unknown[] = []): Promise<object[]> =>
    new Promise((answer) => {
      const [, , awakeMs] = values;
      calls.push({ what, answer, ...(typeof awakeMs === 'number' && { awakeMs }) });
    });
  return { database: { schema: 'outbox', query } as unknown as Database, calls };
}

function makeSleeper(database: Database, maySilence = true): Sleeper {
  const isListening = () => true;
  const emit = () => {};
  return new Sleeper({
    database,
    destinationId: 1,
    pollMs: 5,
    maySilence,
    doorbells: new Doorbells(database, 'relay', isListening),
    lookout: new Lookout({ database, fallbackPollMs: null, maySilence, isListening, emit }),
  });
}

async function turn(): Promise<void> {
  await new Promise(setImmediate);
}

describe('the sleeper', () => {
  it('P7 two words about the doorbell are spoken one after the other: the older never arrives last', async () => {
    const { database, calls } = handDatabase();
    const sleeper = makeSleeper(database);
    void sleeper.register();
    await turn();
    void sleeper.register();
    await turn();
    expect(calls).toHaveLength(1);
    calls[0]?.answer([]);
    await turn();
    expect(calls).toHaveLength(2);
  });

  it('P7 a word that could not be spoken does not keep the next one back', async () => {
    let asked = 0;
    const database = {
      schema: 'outbox',
      query: () => {
        asked += 1;
        return asked === 1 ? Promise.reject(new Error('away')) : Promise.resolve([]);
      },
    } as unknown as Database;
    const sleeper = makeSleeper(database);
    const first = sleeper.register().catch((error: unknown) => (error as Error).message);
    await turn();
    const second = sleeper.register();
    expect(await first).toBe('away');
    await second;
    expect(asked).toBe(2);
  });

  it.each([
    [true, 'silences the bell', [15_000]],
    [false, 'leaves the bell to others when the relay serves only a part', [0]],
  ])('P7 much work (%j) %s', async (maySilence, _what, awakeMs) => {
    const { database, calls } = handDatabase();
    const sleeper = makeSleeper(database, maySilence);
    sleeper.found(10, true);
    sleeper.found(10, true);
    void sleeper.wait();
    await turn();
    expect(calls.map(({ what }) => what)).toEqual(['register doorbell']);
    expect(calls.map((call) => call.awakeMs)).toEqual(awakeMs);
  });

  it('P7 a nudge during a look is not missed by the wait that follows', async () => {
    const { database, calls } = handDatabase();
    const sleeper = makeSleeper(database);
    sleeper.aboutToLook();
    sleeper.nudge();
    const waited = sleeper.wait();
    await turn();
    calls[0]?.answer([]);
    // with nothing due and no poll, only the nudge can end it
    await waited;
  });
});
