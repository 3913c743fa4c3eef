// Event-loop watchdog: measures the longest turn of the loop during some work. It measures processor time of this
// process, at most the elapsed time, so that a busy machine does not matter.

import { setImmediate as nextTurn } from 'node:timers/promises';

/** The longest time that any input may block the loop. */
export const mostBlockedMs = 50;
const mostAttempts = 4;

/** The longest turn while the work runs, in milliseconds. */
export async function longestTurnMs(work: () => Promise<unknown>): Promise<number> {
  let longestMs = 0;
  let wallMs = performance.now();
  let used = process.cpuUsage();
  const look = (): void => {
    const { user, system } = process.cpuUsage(used);
    longestMs = Math.max(longestMs, Math.min(performance.now() - wallMs, (user + system) / 1000));
    wallMs = performance.now();
    used = process.cpuUsage();
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
 * first attempts is compiled while it runs, garbage of earlier tests is collected in some turn, and the processor time
 * of a turn includes the threads of the compiler and the collector. Input that blocks the loop does so every time, and
 * so in the best attempt too.
 */
export async function blockedMs(work: () => Promise<unknown>): Promise<number> {
  let best = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < mostAttempts && best > mostBlockedMs; attempt += 1)
    best = Math.min(best, await longestTurnMs(work));
  return best;
}
