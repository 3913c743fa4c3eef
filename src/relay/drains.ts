// What a drain may do, and what it did.

import type { Outcome } from '../model/outcome.js';

export type DrainReport = {
  processed: number;
  succeeded: number;
  failed: number;
  released: number;
  finished: boolean;
};

export type DrainLimits = {
  maxMs: number;
  /** For each destination. */
  maxMessages: number;
  /** Also the daily retention, if it is due. */
  maintain?: boolean;
};

export type Drained = Record<Outcome['kind'], number>;

export const noneDrained: Drained = { delivered: 0, retry: 0, reject: 0, pause: 0, release: 0 };

/** What happened between two counts. */
export function drainReport(now: Drained, before: Drained, finished: boolean): DrainReport {
  const since = (kind: Outcome['kind']): number => now[kind] - before[kind];
  const failed = since('retry') + since('reject');
  return {
    processed: since('delivered') + failed,
    succeeded: since('delivered'),
    failed,
    released: since('release') + since('pause'),
    finished,
  };
}
