// Outcome: the result of one delivery. Destinations return outcomes instead of throwing; a throw means retry.

import { errorText, shown } from './errors.js';

export type Outcome =
  | ({ readonly kind: 'delivered' } & Receipt)
  | ({ readonly kind: 'retry'; readonly afterMs?: number } & Failure)
  | ({ readonly kind: 'reject' } & Failure)
  | ({ readonly kind: 'pause' } & Failure)
  | { readonly kind: 'release'; readonly afterMs?: number };

/** The message is not sent, and will not be: the delivery ends. Only the relay decides so, no destination. */
export type Discarded = { readonly kind: 'discard' } & Failure;

/** How a claim of a relay ends. */
export type Conclusion = Outcome | Discarded;

/** What the destination answered to a delivered message. */
export type Receipt = {
  /** Where to find the message there: a partition and an offset, or a message id. */
  readonly reference?: string;
  /** The destination's code for the success, such as an HTTP status. */
  readonly remoteCode?: string;
  /** The beginning of the answer. */
  readonly response?: string;
};

export type Failure = {
  /** Waybill's own stable code, such as `timeout` or `http_status`. */
  readonly code: string;
  /** The destination's own code. */
  readonly remoteCode?: string;
  readonly message?: string;
  /** The beginning of the destination's answer. */
  readonly response?: string;
};

const plainDelivered: Outcome = Object.freeze({ kind: 'delivered' });

/** The message arrived. The receipt is a reference, or an object with more. */
export function delivered(receipt?: string | Receipt): Outcome {
  if (receipt === undefined) return plainDelivered;
  return typeof receipt === 'string'
    ? { kind: 'delivered', reference: receipt }
    : { kind: 'delivered', ...receipt };
}

/** The message did not arrive but may later: after `afterMs`, or as the retry policy says. */
export function retry(failure: Failure & { afterMs?: number }): Outcome {
  return { kind: 'retry', ...failure };
}

/** The message can never be delivered: it becomes a dead letter at once. */
export function reject(failure: Failure): Outcome {
  return { kind: 'reject', ...failure };
}

/** No message can be delivered until an operator repairs the destination: it is paused, and no try is spent. */
export function pause(failure: Failure): Outcome {
  return { kind: 'pause', ...failure };
}

/** The message was not sent: it returns to the queue, and no try is spent. */
export function release(): Outcome {
  return { kind: 'release' };
}

/** The outcome of a destination that threw. */
export function thrown(error: unknown): Outcome {
  const { code } = (error ?? {}) as { code?: unknown };
  const known = typeof code === 'string' || typeof code === 'number';
  return retry({
    code: 'thrown',
    ...(known && { remoteCode: String(code) }),
    message: errorText(error),
  });
}

/** The outcome of each message in a batch for which the destination returned the wrong number of outcomes. */
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

/** Makes any answer of a destination a valid outcome, so that one bad answer cannot keep a batch from being recorded. */
export function soundOutcome(value: unknown): Outcome {
  if (!isOutcome(value)) {
    return retry({
      code: 'outcome_invalid',
      message: 'the destination answered something that is not an outcome',
    });
  }
  const outcome = value;
  // a destination that releases a message will not take it a moment later either
  if (outcome.kind === 'release') return { kind: 'release', afterMs: releasedForMs };
  if (outcome.kind !== 'retry' || outcome.afterMs === undefined) return outcome;
  const { afterMs, ...failure } = outcome;
  return Number.isFinite(afterMs) && afterMs >= 0
    ? retry({ ...failure, afterMs: Math.min(Math.round(afterMs), longestDelayMs) })
    : retry(failure);
}

/** Makes a text that PostgreSQL can store: error texts have any content, and settling must never fail because of it. */
export function cleanText(value: unknown, maxLength = 2000): string {
  const text = typeof value === 'string' ? value : shown(value, maxLength);
  const short = text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
  return short.toWellFormed().replaceAll('\u0000', '\uFFFD');
}
