// The platform's dispatcher of one namespace: claims, publishes one message after the other, and acks or nacks, until
// the signal is aborted. A publish in progress is finished, within a deadline. Messages that were not started, at a stop
// or because the lease expired, are released. A lost lease is logged and never counts as a failed publish, because
// another worker may hold the message by then.

import { setTimeout as delay } from 'node:timers/promises';

import { LeaseLostError } from './store.js';
import type { ClaimedMessage, Settings, Store } from './store.js';

/** Throws if it failed. */
export type Publish = (message: ClaimedMessage) => Promise<unknown>;

export type DispatchEvent = {
  kind: 'delivered' | 'failed' | 'lease_lost' | 'unfinished';
  id: string;
  error?: unknown;
};

/** Durations are in milliseconds. */
export type DispatchOptions = Partial<Settings> & {
  /** Default: 100. */
  batch_size?: number;
  /** Default: 30,000. */
  lease_duration?: number;
  /** At most a third of lease_duration. Default: 1,000. */
  poll_interval?: number;
  /** How long a stop waits for a publish in progress. Default: 8,000. */
  stop_deadline?: number;
  on_event?: (event: DispatchEvent) => void;
  /** Default: standard error. */
  log?: (line: string) => void;
};

/** signal: the cancellation token. Settings that differ from those of the namespace are refused. */
export async function dispatch(
  store: Store,
  publish: Publish,
  options: DispatchOptions,
  signal: AbortSignal,
): Promise<void> {
  const { batch_size = 100, lease_duration = 30_000, poll_interval = 1000 } = options;
  const { stop_deadline = 8000, on_event = () => undefined, log = console.error } = options;
  if (!(poll_interval > 0 && poll_interval <= lease_duration / 3))
    throw new Error(
      `poll_interval is ${poll_interval}: give at most a third of lease_duration (${lease_duration})`,
    );
  const settings = await store.settings();
  for (const name of ['max_attempts', 'base_delay', 'max_delay'] as const)
    if (options[name] !== undefined && options[name] !== settings[name])
      throw new Error(
        `${name} is ${options[name]}: the namespace "${store.namespace}" has ${settings[name]}, for all of its dispatchers`,
      );
  const { max_attempts } = settings;
  const deadline = afterAbort(signal, stop_deadline);
  const idle = () => delay(poll_interval, undefined, { signal }).catch(() => undefined);

  while (!signal.aborted) {
    const leaseEndsAt = performance.now() + lease_duration;
    let waiting: ClaimedMessage[] = [];
    try {
      waiting = await store.claim_batch({ batch_size, lease_duration, max_attempts });
      if (waiting.length === 0) await idle();
      for (
        let next = waiting[0];
        next && !signal.aborted && performance.now() < leaseEndsAt;
        next = waiting[0]
      ) {
        waiting.shift();
        await deliver(next);
      }
      if (waiting.length > 0) await store.release(waiting.map(({ id }) => id));
    } catch (error) {
      // 22023: the settings of the namespace were changed, or it is gone
      if ((error as { code?: string }).code === '22023') throw error;
      // the database is away: what this worker holds is reclaimed after its lease
      log(`dispatcher of ${store.namespace}: ${String(error)}`);
      await idle();
    }
  }

  async function deliver(message: ClaimedMessage): Promise<void> {
    const { id } = message;
    const published = (async () => publish(message))().then(
      () => ({ kind: 'delivered' as const }),
      (error: unknown) => ({ kind: 'failed' as const, error }),
    );
    const result = await Promise.race([published, deadline]);
    // it is unknown whether it was sent: the lease expires, and the attempt counts
    if (result === undefined) return on_event({ kind: 'unfinished', id });
    try {
      if (result.kind === 'delivered') await store.ack(id);
      else await store.nack(id, result.error);
      on_event({ ...result, id });
    } catch (error) {
      if (!(error instanceof LeaseLostError)) throw error;
      log(`lease lost: ${error.message}`);
      on_event({ kind: 'lease_lost', id, error });
    }
  }
}

/** Settles so long after the signal; its timer keeps no process alive. */
function afterAbort(signal: AbortSignal, ms: number): Promise<undefined> {
  return new Promise((resolve) => {
    const start = () => void setTimeout(() => resolve(undefined), ms).unref();
    if (signal.aborted) start();
    else signal.addEventListener('abort', start, { once: true });
  });
}
