// How one delivery went, as a value. Destinations return outcomes instead of throwing; a throw means retry.

import { errorText, shown } from '../errors.js';

export type Outcome =
  | ({ readonly kind: 'delivered' } & Receipt)
  | ({ readonly kind: 'retry'; readonly afterMs?: number } & Failure)
  | ({ readonly kind: 'reject' } & Failure)
  | ({ readonly kind: 'pause' } & Failure)
  | { readonly kind: 'release'; readonly afterMs?: number };

/** What the other side gave in return. */
export type Receipt = {
  /** Where to find it there: a partition and an offset, a message id. */
  readonly reference?: string;
  /** The other side's code for the success, such as an HTTP status. */
  readonly remoteCode?: string;
  /** The beginning of its answer. */
  readonly response?: string;
};

export type Failure = {
  /** Waybill's own code, stable, such as `timeout` or `http_status`. */
  readonly code: string;
  /** The other side's code, as it gave it. */
  readonly remoteCode?: string;
  readonly message?: string;
  /** The beginning of the other side's answer. */
  readonly response?: string;
};

const plainDelivered: Outcome = Object.freeze({ kind: 'delivered' });

/** It arrived; the receipt of the other side is a reference, or more than that. */
export function delivered(receipt?: string | Receipt): Outcome {
  if (receipt === undefined) return plainDelivered;
  return typeof receipt === 'string'
    ? { kind: 'delivered', reference: receipt }
    : { kind: 'delivered', ...receipt };
}

/** It did not arrive, and may another time: after `afterMs`, or as the retry policy says. */
export function retry(failure: Failure & { afterMs?: number }): Outcome {
  return { kind: 'retry', ...failure };
}

/** It will never arrive: straight to the dead letters. */
export function reject(failure: Failure): Outcome {
  return { kind: 'reject', ...failure };
}

/** Nothing will arrive until somebody mends the destination: it is paused, and no try is spent. */
export function pause(failure: Failure): Outcome {
  return { kind: 'pause', ...failure };
}

/** It was never sent: back to the queue for a moment, and no try is spent. */
export function release(): Outcome {
  return { kind: 'release' };
}

/** What a throw means. */
export function thrown(error: unknown): Outcome {
  const { code } = (error ?? {}) as { code?: unknown };
  const known = typeof code === 'string' || typeof code === 'number';
  return retry({
    code: 'thrown',
    ...(known && { remoteCode: String(code) }),
    message: errorText(error),
  });
}

/** What another number of outcomes than of messages means for each of these. */
export function outcomesMissing(given: number, wanted: number): Outcome {
  const message = `the destination gave ${given} outcomes for ${wanted} messages`;
  return retry({ code: 'outcomes_missing', message });
}

const kinds = new Set(['delivered', 'retry', 'reject', 'pause', 'release']);
const longestDelayMs = 315_360_000_000;
const releasedForMs = 1000;

export function isOutcome(value: unknown): value is Outcome {
  return (
    typeof value === 'object' &&
    value !== null &&
    'kind' in value &&
    kinds.has(value.kind as string)
  );
}

/** What a destination answered, made sound: nothing it says can keep the rest of a batch from being recorded. */
export function soundOutcome(value: unknown): Outcome {
  if (!isOutcome(value)) {
    return retry({
      code: 'outcome_invalid',
      message: 'the destination answered something that is not an outcome',
    });
  }
  const outcome = value;
  // a destination that takes nothing now will not take it at once again
  if (outcome.kind === 'release') return { kind: 'release', afterMs: releasedForMs };
  if (outcome.kind !== 'retry' || outcome.afterMs === undefined) return outcome;
  const { afterMs, ...failure } = outcome;
  return Number.isFinite(afterMs) && afterMs >= 0
    ? retry({ ...failure, afterMs: Math.min(Math.round(afterMs), longestDelayMs) })
    : retry(failure);
}

/** Error texts come from anywhere; PostgreSQL must be able to store them, and settling never fails on content. */
export function cleanText(value: unknown, maxLength = 2000): string {
  const text = typeof value === 'string' ? value : shown(value, maxLength);
  const short = text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
  return short.toWellFormed().replaceAll('\u0000', '\uFFFD');
}
