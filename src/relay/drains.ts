// Drain: the limits that a caller gives, and the report that it returns.

import { checkOptions, flag, integer } from '../core/options.js';
import type { Outcome } from '../core/outcome.js';

export type DrainReport = {
  processed: number;
  succeeded: number;
  failed: number;
  released: number;
  finished: boolean;
  /** Messages without a route at the end; at most 10,000 are counted. */
  unrouted: number;
  /** Cursors of destinations with `mode: 'stream'` that another process reads with. */
  heldCursors: string[];
};

export type DrainLimits = {
  /** How long the drain may take. Default 50,000. */
  maxMs?: number;
  /** The most messages, for each destination. Default 1,000,000. */
  maxMessages?: number;
  /** Also seals, and runs the daily retention if it is due. Default false. */
  maintain?: boolean;
};

export const drainLimitKinds = {
  maxMs: integer({ min: 1, max: 3_600_000, default: 50_000 }),
  maxMessages: integer({ min: 1, max: 1_000_000_000, default: 1_000_000 }),
  maintain: flag(false),
};

export type ResolvedDrainLimits = ReturnType<typeof resolveDrainLimits>;

export function resolveDrainLimits(where: string, limits: DrainLimits) {
  return checkOptions(where, limits, drainLimitKinds);
}

export type Drained = Record<Outcome['kind'], number>;

export const noneDrained: Drained = { delivered: 0, retry: 0, reject: 0, pause: 0, release: 0 };

export function addDrained(total: Drained, counts: Drained): void {
  for (const kind of ['delivered', 'retry', 'reject', 'pause', 'release'] as const)
    total[kind] += counts[kind];
}

/** What happened between two counts. */
export function drainCounts(now: Drained, before: Drained) {
  const since = (kind: Outcome['kind']): number => now[kind] - before[kind];
  const failed = since('retry') + since('reject');
  return {
    processed: since('delivered') + failed,
    succeeded: since('delivered'),
    failed,
    released: since('release') + since('pause'),
  };
}

/** The report of what happened between two counts. */
export function drainReport(
  now: Drained,
  before: Drained,
  {
    finished,
    unrouted,
    heldCursors = [],
  }: Pick<DrainReport, 'finished' | 'unrouted'> & Partial<Pick<DrainReport, 'heldCursors'>>,
): DrainReport {
  return { ...drainCounts(now, before), finished, unrouted, heldCursors };
}
