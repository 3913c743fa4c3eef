// Waiting for a condition instead of for a length of time: a test that sleeps is either slow or flaky. The
// error of a wait in vain names what never came, so that a failure can be read without the code.

import { setTimeout as delay } from 'node:timers/promises';

const pollMs = 10;
const slowestPollMs = 40;

export type WaitOptions = {
  /** What is waited for, as it reads in "waited 10000 ms in vain for …". */
  what: string;
  timeoutMs?: number;
};

type Pending = undefined | null | false;

/** Polls the condition until it gives something that is not undefined, null or false, and returns that. */
export async function waitFor<T>(
  condition: () => T | Pending | Promise<T | Pending>,
  { what, timeoutMs = 10_000 }: WaitOptions,
): Promise<T> {
  const startedMs = Date.now();
  const deadline = startedMs + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value !== undefined && value !== null && value !== false) return value;
    if (Date.now() >= deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    // questions cost what the tests beside this one wait for; a long wait is lengthened by a twentieth at most
    const slowerMs = (Date.now() - startedMs) / 20;
    await delay(Math.min(Math.max(pollMs, slowerMs), slowestPollMs));
  }
}
