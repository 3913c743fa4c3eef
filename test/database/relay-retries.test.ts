// The time of retries after a failed delivery.

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { release, retry } from '../../src/core/outcome.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, sendOne, startRelay, untilEnded, untilPlaces } from '../support/relay.js';

const db = testDatabase();

const soon = { retry: { maxAttempts: 3, baseMs: 1, maxMs: 1 } };

describe('retries', () => {
  it('come after the delay that the destination asks for', async () => {
    const asked = 400;
    await startRelay(db, {
      destinations: {
        later: handler(
          (message) => (message.tries === 1 ? retry({ code: 'busy', afterMs: asked }) : undefined),
          { retry: { baseMs: 3_600_000, maxMs: 3_600_000 } },
        ),
      },
    });
    const id = await sendOne(db, { topic: 'later' });
    await untilPlaces(db, 'later', { delivered: 1 });
    const [first, second] = await attemptsOf(db, id, 'later');
    expect(first).toMatchObject({ state: 'retryable', error_code: 'busy' });
    const pausedMs = (second?.claimed_at.getTime() ?? 0) - (first?.ended_at.getTime() ?? 0);
    expect(pausedMs).toBeGreaterThanOrEqual(asked - 1);
  });

  it('W3 an explicit list of n delays means one first try and n retries, then a dead letter', async () => {
    const delaysMs = [60, 120, 180];
    let calls = 0;
    await startRelay(db, {
      destinations: {
        listed: handler(
          () => {
            calls += 1;
            return retry({ code: 'down', message: `try ${calls}` });
          },
          { retry: { delaysMs } },
        ),
      },
    });
    const id = await sendOne(db, { topic: 'listed' });
    await untilPlaces(db, 'listed', { dead: 1 });
    const attempts = await attemptsOf(db, id, 'listed');
    expect(attempts.map(({ state, error_message }) => `${state} ${error_message}`)).toEqual([
      'retryable try 1',
      'retryable try 2',
      'retryable try 3',
      'failed try 4',
    ]);
    const pausesMs = attempts
      .slice(1)
      .map((attempt, n) => attempt.claimed_at.getTime() - (attempts[n]?.ended_at.getTime() ?? 0));
    pausesMs.forEach((ms, n) => expect(ms).toBeGreaterThanOrEqual((delaysMs[n] ?? 0) - 1));
  });

  it('W3 M10 an exponential delay is between half and all of base * 2^(tries-1)', async () => {
    const baseMs = 400;
    // the delay begins a little before the time at which the attempt ended is recorded
    const earlierMs = 50;
    await startRelay(db, {
      destinations: {
        doubling: handler(() => retry({ code: 'down' }), {
          retry: { maxAttempts: 3, baseMs, maxMs: 10_000 },
        }),
      },
    });
    const id = await sendOne(db, { topic: 'doubling' });
    await untilPlaces(db, 'doubling', { dead: 1 });
    const attempts = await attemptsOf(db, id, 'doubling');
    const pausesMs = attempts
      .slice(1)
      .map((attempt, n) => attempt.claimed_at.getTime() - (attempts[n]?.ended_at.getTime() ?? 0));
    expect(pausesMs).toHaveLength(2);
    expect(pausesMs[0]).toBeGreaterThanOrEqual(baseMs / 2 - earlierMs);
    expect(pausesMs[1]).toBeGreaterThanOrEqual(baseMs - earlierMs);
  });

  it('M6 a released message is requeued, and uses no try', async () => {
    let calls = 0;
    await startRelay(db, {
      destinations: {
        hesitant: handler(() => {
          calls += 1;
          return calls < 2 ? release() : undefined;
        }, soon),
      },
    });
    const id = await sendOne(db, { topic: 'hesitant' });
    await untilEnded(db, 'hesitant');
    expect(await attemptsOf(db, id, 'hesitant')).toMatchObject([
      { state: 'released', claim_no: 1, tries: 0 },
      { state: 'dispatched', claim_no: 2, tries: 1 },
    ]);
  });
});
