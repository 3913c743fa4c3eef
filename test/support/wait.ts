// Waits for a condition instead of for a length of time, because a test that sleeps is slow or flaky. The error after a
// timeout names what never came, so that a failure can be read without the code.

import { setTimeout as delay } from 'node:timers/promises';

const pollMs = 10;
const slowestPollMs = 40;

export type WaitOptions = {
  /** The awaited thing, as it reads in "waited 20000 ms in vain for …". */
  what: string;
  timeoutMs?: number;
};

type Pending = undefined | null | false;

/** Polls the condition until it returns something other than undefined, null or false, and returns that. */
export async function waitFor<T>(
  condition: () => T | Pending | Promise<T | Pending>,
  { what, timeoutMs = 20_000 }: WaitOptions,
): Promise<T> {
  const startedMs = Date.now();
  const deadline = startedMs + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value !== undefined && value !== null && value !== false) return value;
    if (Date.now() >= deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    // polling costs time of the tests that run beside this one; a long wait becomes at most a twentieth longer
    const slowerMs = (Date.now() - startedMs) / 20;
    await delay(Math.min(Math.max(pollMs, slowerMs), slowestPollMs));
  }
}
