// Counts the full garbage collections of this process.

import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Starts to count; the returned function gives the number so far. @returns {() => Promise<number>} */
export function countCleanings() {
  let count = 0;
  const add = (/** @type {import('node:perf_hooks').PerformanceEntry[]} */ entries) => {
    for (const { detail } of entries)
      if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) count += 1;
  };
  const observer = new PerformanceObserver((list) => add(list.getEntries()));
  observer.observe({ entryTypes: ['gc'] });
  return async () => {
    // Node records a collection in the turn after it, and notifies observers in the next
    await nextTurn();
    add(observer.takeRecords());
    return count;
  };
}
