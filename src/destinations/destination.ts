// Destination: the contract of every destination (open, deliver one message or a batch, report health, close), and the
// settings that all of them share. A destination returns outcomes; if it throws, the message is retried.

import type { ClaimedMessage } from '../core/claimed-message.js';
import { classifyKind } from '../core/classify.js';
import type { Classify } from '../core/classify.js';
import { guardKind } from '../core/guard.js';
import type { Guard } from '../core/guard.js';
import { checkOptions, choice, integer } from '../core/options.js';
import type { Outcome } from '../core/outcome.js';
import { breakerKind, rateKind } from '../core/destination-limits.js';
import type {
  BreakerOptions,
  RateLimit,
  ResolvedBreaker,
  ResolvedRate,
} from '../core/destination-limits.js';
import { resolveRetryPolicy } from '../core/retry-policy.js';
import type { ResolvedRetryPolicy, RetryPolicy } from '../core/retry-policy.js';
import type { SentRequest } from './sent-request.js';

export type DestinationSettings = {
  /** Deliveries in flight at once, per relay. Default 20. */
  concurrency?: number;
  /** A delivery that takes longer is aborted and counts as failed. Default 30,000. */
  timeoutMs?: number;
  /** `stream`: reads the log in order with its own cursor, one batch at a time, instead of having deliveries. Default `deliver`. */
  mode?: 'deliver' | 'stream';
  /** Where a new stream starts: `now`, with messages from now on, or at the `beginning` of the log. Default `now`. */
  from?: 'now' | 'beginning';
  /** How many relays can read a stream at the same time: the log is divided by key into so many partitions. Default 1. */
  partitions?: number;
  retry?: RetryPolicy;
  /** What later messages of a key do behind a dead letter: go on (`continue`), wait for an operator (`block`), or become dead letters too (`park`). */
  whenDead?: WhenDead;
  /** `tenant`: each claim is shared equally among tenants with due messages, however many each has. Default `none`. */
  fairness?: Fairness;
  /** A check before anything is sent. A message that it refuses becomes a dead letter, and the destination is not called. */
  guard?: Guard;
  /** What failures mean, by code: the other side's code first, then Waybill's; `default` for all others. Default: the destination's own decision. */
  classify?: Classify;
  /** The most messages per second, over all relays together. Default: no limit. */
  rate?: RateLimit;
  /** Circuit breaker: stops claims for a destination that fails too often, so that no tries are used up. Not for streams. Default `null`. */
  breaker?: BreakerOptions | null;
};

export type WhenDead = 'continue' | 'block' | 'park';
export type Fairness = 'none' | 'tenant';

export type ResolvedSettings = {
  concurrency: number;
  timeoutMs: number;
  mode: 'deliver' | 'stream';
  from: 'now' | 'beginning';
  partitions: number;
  retry: ResolvedRetryPolicy;
  whenDead: WhenDead;
  fairness: Fairness;
  guard: Guard | undefined;
  classify: Classify | undefined;
  rate: ResolvedRate | undefined;
  breaker: ResolvedBreaker | null;
};

export type DeliveryContext = {
  /** Aborted at the timeout, and when the relay must stop. */
  readonly signal: AbortSignal;
  /**
   * Registers a listener for the abort; at most one. If a relay offers it, a destination uses it instead of the signal,
   * which costs more than the rest of a call. If the listener returns an outcome, the call ends with it: the other side
   * has already answered, and only the rest of its answer is missing. Without one, no answer came.
   */
  onAbort?(listener: (reason: Error) => unknown): void;
};

export type Health = { readonly ok: true } | { readonly ok: false; readonly problem: string };

type DestinationBase = {
  readonly kind: string;
  readonly settings: ResolvedSettings;
  /**
   * Where the destination sends and in which format, without secrets. Two applications can share the destination if
   * their definitions are equal. Without a definition it cannot be shared, because functions cannot be compared.
   */
  readonly definition?: object;
  /**
   * Called before the first delivery, and again after a close. Throws only for permanent errors, such as a missing
   * library. If the other side is unavailable it does not throw: deliveries then fail and are retried. `relays` is the
   * number of relays in this process that share the destination, each with its own concurrency. Default 1.
   */
  open?(relays?: number): Promise<void> | void;
  /** Whether the other side can be reached now and is set up. Called for operators, never before a delivery. */
  health?(context: DeliveryContext): Promise<Health>;
  /** The body that would be sent, as JSON, for the comparison with another system. Default: the payload as it is. */
  render?(message: ClaimedMessage): string;
  /** The request that is sent for a message, for operators and without secrets; `sentAt`: when the try began. Only for requests over HTTP. */
  request?(message: ClaimedMessage, sentAt: Date | null): SentRequest;
  /** Called after the last delivery. Closes every connection, even if the other side does not answer. */
  close?(): Promise<void> | void;
};

export type SingleDestination = DestinationBase & {
  deliver(message: ClaimedMessage, context: DeliveryContext): Promise<Outcome> | Outcome;
};

export type BatchDestination = DestinationBase & {
  /** The most messages in one call. */
  readonly batchSize: number;
  /** A call may contain several messages of a key: if one fails, the later ones of its key fail too. */
  readonly keepsOrder?: boolean;
  /** One outcome per message, in the same order. */
  deliverBatch(
    messages: readonly ClaimedMessage[],
    context: DeliveryContext,
  ): Promise<readonly Outcome[]>;
};

export type Destination = SingleDestination | BatchDestination;

/** How many partitions a cursor may have; see define_cursor in sql/functions/cursors/cursors.sql. */
export const partitionsKind = integer({ min: 1, max: 64, default: 1 });

export const settingKinds = {
  concurrency: integer({ min: 1, max: 10_000, default: 20 }),
  timeoutMs: integer({ min: 1, max: 3_600_000, default: 30_000 }),
  mode: choice('deliver', 'stream'),
  from: choice('now', 'beginning'),
  partitions: partitionsKind,
  retry: (name: string, value: unknown) => resolveRetryPolicy(name, value as RetryPolicy),
  whenDead: choice('continue', 'block', 'park'),
  fairness: choice('none', 'tenant'),
  guard: guardKind,
  classify: classifyKind,
  rate: rateKind,
  breaker: breakerKind,
};

export function resolveSettings(
  where: string,
  settings: DestinationSettings | undefined,
): ResolvedSettings {
  return checkOptions(where, settings, settingKinds);
}
