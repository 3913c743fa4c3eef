// Waiting for a condition instead of for a length of time: a test that sleeps is either slow or flaky. The
// error of a wait in vain names what never came, so that a failure can be read without the code.

import { setTimeout as delay } from 'node:timers/promises';

const pollMs = 10;

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
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value !== undefined && value !== null && value !== false) return value;
    if (Date.now() >= deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`);
    await delay(pollMs);
  }
}
