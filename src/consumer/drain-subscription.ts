// Drain of a subscription, for processes that live for seconds: reads what was committed when it began, and ends. The
// next one goes on at the cursor, which is released at once.

import { checkOptions } from '../core/options.js';
import { drainCounts, drainLimitKinds, noneDrained } from '../relay/drains.js';
import type { DrainLimits, DrainReport } from '../relay/drains.js';
import { within } from '../relay/within.js';
import { checkHandler, resolveSubscribeOptions, RunningSubscription } from './subscribe.js';
import type { StreamHandler, SubscribeOptions } from './subscribe.js';

export type SubscriptionDrainLimits = Pick<DrainLimits, 'maxMs' | 'maxMessages'>;

export type SubscriptionDrainReport = Pick<
  DrainReport,
  'processed' | 'succeeded' | 'failed' | 'released'
> & {
  /**
   * Everything that was committed at the start was read or parked, or waits behind a message that failed. False if a
   * limit was reached, or another reader holds the cursor.
   */
  finished: boolean;
  /** The name of the other reader that holds the cursor; null: none. */
  heldBy: string | null;
  /** The time until the message that failed is tried again, if one waits. A later drain does that. */
  retryInMs: number | null;
};

/** Takes the options of `subscribe`. It does not wait for a database that is down. */
export async function drainSubscription(
  options: SubscribeOptions,
  handle: StreamHandler,
  limits: SubscriptionDrainLimits = {},
): Promise<SubscriptionDrainReport> {
  const where = 'drainSubscription';
  const resolved = resolveSubscribeOptions(options, where);
  checkHandler(where, handle);
  const { maxMs, maxMessages } = checkOptions(where, limits, {
    maxMs: drainLimitKinds.maxMs,
    maxMessages: drainLimitKinds.maxMessages,
  });
  const { signal } = resolved;
  signal?.throwIfAborted();
  const deadlineMs = performance.now() + maxMs;
  const running = new RunningSubscription({ ...resolved, startupWaitMs: 0 }, handle, {
    maxMessages,
  });
  const stop = () => void running.stop().catch(() => {});
  signal?.addEventListener('abort', stop, { once: true });
  try {
    await running.start();
    await within(deadlineMs, running.ended());
  } finally {
    signal?.removeEventListener('abort', stop);
    await running.stop();
  }
  const { counts, stream, emptied } = running.drained;
  return { ...drainCounts(counts, noneDrained), ...stream, finished: stream.finished && emptied };
}
