// The platform's dispatcher: claims, publishes one message after the other, and acks or nacks, until the signal is
// aborted. A publish in progress is finished, within a deadline. Messages that were not started, at a stop or because
// the lease expired, are released. A lost lease is reported and never counts as a failed publish, because another
// worker may hold the message by then.

import { setTimeout as delay } from 'node:timers/promises';

import { LeaseLostError } from './store.mjs';

/**
 * Durations are in milliseconds.
 *
 * @param {ReturnType<typeof import('./store.mjs').createStore>} store
 * @param {(message: { id: string, topic: string, payload: unknown, dedupe_key: string }) => Promise<void>} publish throws if it failed
 * @param {{ batch_size?: number, lease_duration?: number, max_attempts?: number, poll_interval?: number, stop_deadline?: number,
 *   on_event?: (event: { kind: 'delivered' | 'failed' | 'lease_lost' | 'unfinished', id: string, error?: Error }) => void }} options
 * @param {AbortSignal} signal the cancellation token
 */
export async function dispatch(store, publish, options, signal) {
  const { batch_size, lease_duration, max_attempts, poll_interval, stop_deadline, on_event } = {
    batch_size: 100,
    lease_duration: 30_000,
    max_attempts: 10,
    poll_interval: 1000,
    stop_deadline: 8000,
    on_event: () => undefined,
    ...options,
  };
  if (!(poll_interval > 0 && poll_interval <= lease_duration / 3))
    throw new Error(
      `poll_interval is ${poll_interval}: give at most a third of lease_duration (${lease_duration})`,
    );
  const deadline = afterAbort(signal, stop_deadline);

  while (!signal.aborted) {
    const leaseEndsAt = performance.now() + lease_duration;
    const messages = await store.claim_batch({ batch_size, lease_duration, max_attempts });
    const idle = messages.length === 0;
    while (messages.length > 0 && !signal.aborted && performance.now() < leaseEndsAt)
      await deliver(messages.shift());
    if (messages.length > 0) await store.release(messages.map(({ id }) => id));
    if (idle) await delay(poll_interval, undefined, { signal }).catch(() => undefined);
  }

  async function deliver(message) {
    const { id } = message;
    const published = (async () => publish(message))().then(
      () => 'delivered',
      (error) => ({ error }),
    );
    const result = await Promise.race([published, deadline]);
    // it is unknown whether it was sent: the lease expires, and the attempt counts
    if (result === undefined) return on_event({ kind: 'unfinished', id });
    try {
      if (result === 'delivered') await store.ack(id);
      else await store.nack(id, result.error);
      on_event(
        result === 'delivered' ? { kind: 'delivered', id } : { kind: 'failed', id, ...result },
      );
    } catch (error) {
      if (!(error instanceof LeaseLostError)) throw error;
      on_event({ kind: 'lease_lost', id, error });
    }
  }
}

/** Settles so long after the signal; its timer keeps no process alive. */
function afterAbort(signal, ms) {
  return new Promise((resolve) => {
    const start = () => setTimeout(resolve, ms).unref();
    if (signal.aborted) start();
    else signal.addEventListener('abort', start, { once: true });
  });
}
