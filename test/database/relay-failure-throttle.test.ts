// Failure throttle: a destination where everything fails gets a quarter of its concurrency, so that it does not slow
// healthy ones. Its first success restores the rest.

import { it } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { delivered, retry } from '../../src/core/outcome.js';
import type { Outcome } from '../../src/core/outcome.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, send, startRelay, untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const concurrency = 8;

it('P9 while everything fails a quarter of the calls are made at once, and all again after a success', async () => {
  /** Calls that wait for their response. */
  const waiting: ((outcome: Outcome) => void)[] = [];
  let isWell = false;
  const call = () => new Promise<Outcome>((resolve) => waiting.push(resolve));
  await startRelay(db, {
    destinations: {
      troubled: handler(() => (isWell ? delivered() : call()), {
        concurrency,
        retry: { maxAttempts: 100, baseMs: 1, maxMs: 1 },
      }),
    },
  });
  await send(db, numbered('troubled', 40));
  const untilInFlight = (count: number) =>
    waitFor(() => waiting.length === count, { what: `${count} calls in flight` });
  const fail = () => waiting.shift()?.(retry({ code: 'http_status', remoteCode: '500' }));

  await untilInFlight(concurrency);
  // one failure less than the threshold
  for (let failed = 0; failed < 2 * concurrency - 1; failed += 1) {
    fail();
    await untilInFlight(concurrency);
  }
  for (let open = concurrency; open > concurrency / 4; open -= 1) fail();
  await untilInFlight(concurrency / 4);
  fail();
  await untilInFlight(concurrency / 4);

  waiting.shift()?.(delivered());
  await untilInFlight(concurrency);
  isWell = true;
  for (const answer of waiting) answer(delivered());
  await untilPlaces(db, 'troubled', { waiting: 0, leased: 0, delivered: 40, dead: 0 });
});

it('P9 a destination that accepts some of each batch keeps all of its calls', async () => {
  const waiting: (() => void)[] = [];
  await startRelay(db, {
    destinations: {
      choosy: batchHandler(
        (messages) =>
          new Promise<Outcome[]>((resolve) =>
            waiting.push(() =>
              resolve(
                messages.map((_message, index) =>
                  index === 0 ? delivered() : retry({ code: 'later' }),
                ),
              ),
            ),
          ),
        { batchSize: 20, concurrency: 4, retry: { maxAttempts: 100, baseMs: 1, maxMs: 1 } },
      ),
    },
  });
  await send(db, numbered('choosy', 200));
  const untilInFlight = () => waitFor(() => waiting.length === 4, { what: '4 calls in flight' });
  await untilInFlight();
  for (let round = 0; round < 3; round += 1) {
    // this many at once: a claim waits for enough room
    for (const answer of waiting.splice(0, 2)) answer();
    await untilInFlight();
  }
});
