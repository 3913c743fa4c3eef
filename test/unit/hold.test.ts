// A hold in a process: renewed every third of its duration, reported when it is lost, and released once.

import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import type { RelayEvent } from '../../src/telemetry/events.js';
import { Hold } from '../../src/relay/upkeep/hold.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function hold(renew: () => Promise<boolean>, release = () => Promise.resolve(true)) {
  const calls: string[] = [];
  const events: RelayEvent[] = [];
  const made = new Hold({
    what: 'hold it',
    heldMs: 3000,
    renew: () => {
      calls.push('renew');
      return renew();
    },
    release: () => {
      calls.push('release');
      return release();
    },
    onLost: () => calls.push('lost'),
    emit: (event) => void events.push(event),
  });
  return { made, calls, events };
}

test('is renewed every third of its duration until it is released', async () => {
  const { made, calls } = hold(() => Promise.resolve(true));
  await vi.advanceTimersByTimeAsync(999);
  expect(calls).toEqual([]);
  await vi.advanceTimersByTimeAsync(2001);
  expect(calls).toEqual(['renew', 'renew', 'renew']);
  expect(await made.release()).toBe(true);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(calls).toEqual(['renew', 'renew', 'renew', 'release']);
});

test('reports that it is lost', async () => {
  const { made, calls } = hold(() => Promise.resolve(false));
  await vi.advanceTimersByTimeAsync(1000);
  expect(calls).toEqual(['renew', 'lost']);
  await made.stop();
});

test('a renewal that fails is reported and tried again; it does not mean that the hold is lost', async () => {
  const { made, calls, events } = hold(() => Promise.reject(new Error('the database is away')));
  await vi.advanceTimersByTimeAsync(2000);
  expect(calls).toEqual(['renew', 'renew']);
  expect(events).toMatchObject([{ name: 'trouble' }, { name: 'trouble' }]);
  await made.stop();
});

test('a release waits for a renewal in flight, and a failed one leaves the hold to its expiry', async () => {
  let end = (_held: boolean) => {};
  const renewing = new Promise<boolean>((resolve) => (end = resolve));
  const { made, calls } = hold(
    () => renewing,
    () => Promise.reject(new Error('the database is away')),
  );
  await vi.advanceTimersByTimeAsync(1000);
  const released = made.release();
  await vi.advanceTimersByTimeAsync(1000);
  expect(calls).toEqual(['renew']);
  end(true);
  expect(await released).toBe(false);
  expect(calls).toEqual(['renew', 'release']);
});
