// Counts how often V8 cleans all of this process's memory.

import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Counts from now on; what it returns says how many there were so far. @returns {() => Promise<number>} */
export function countCleanings() {
  let count = 0;
  const add = (/** @type {import('node:perf_hooks').PerformanceEntry[]} */ entries) => {
    for (const { detail } of entries)
      if (detail.kind === constants.NODE_PERFORMANCE_GC_MAJOR) count += 1;
  };
  const observer = new PerformanceObserver((list) => add(list.getEntries()));
  observer.observe({ entryTypes: ['gc'] });
  return async () => {
    // Node writes one down in the turn after it, and tells of it in the next
    await nextTurn();
    add(observer.takeRecords());
    return count;
  };
}
