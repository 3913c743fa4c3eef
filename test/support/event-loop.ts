// Event-loop watchdog: measures the longest turn of the loop during some work. It measures processor time, at most the
// elapsed time, so that a busy machine does not matter.

import { existsSync, readFileSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** The longest time that any input may block the loop. */
export const mostBlockedMs = 50;
const mostAttempts = 4;

/**
 * The processor time of the thread that runs the loop, which is the main thread of its process. Where the system does
 * not say it, that of the process, with the threads of the compiler and the collector.
 */
const mainThread = `/proc/self/task/${process.pid}/schedstat`;
const processorMs: () => number = existsSync(mainThread)
  ? () => Number.parseInt(readFileSync(mainThread, 'utf8')) / 1e6
  : () => {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1000;
    };

/** The longest turn while the work runs, in milliseconds. */
export async function longestTurnMs(work: () => Promise<unknown>): Promise<number> {
  let longestMs = 0;
  let wallMs = performance.now();
  let usedMs = processorMs();
  const look = (): void => {
    const turnMs = Math.min(performance.now() - wallMs, processorMs() - usedMs);
    longestMs = Math.max(longestMs, turnMs);
    wallMs = performance.now();
    usedMs = processorMs();
  };
  const state = { working: true };
  const watching = (async () => {
    while (state.working) {
      await nextTurn();
      look();
    }
  })();
  try {
    await work();
  } finally {
    state.working = false;
    await watching;
  }
  return longestMs;
}

/**
 * The longest turn of the best of four attempts; the first that is short enough ends the measurement. The code of the
 * first attempts is compiled while it runs, and garbage of earlier tests is collected in some turn. Input that blocks
 * the loop does so every time, and so in the best attempt too.
 */
export async function blockedMs(work: () => Promise<unknown>): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < mostAttempts && best > mostBlockedMs; attempt += 1)
    best = Math.min(best, await longestTurnMs(work));
  return best;
}
