// The contract that every destination keeps: open, deliver one message or a batch, say how it is, close; and the
// settings that all of them share. A destination returns outcomes; a throw means retry.

import type { ClaimedMessage } from '../model/claimed-message.js';
import { classifyKind } from '../model/classify.js';
import type { Classify } from '../model/classify.js';
import { guardKind } from '../model/guard.js';
import type { Guard } from '../model/guard.js';
import { checkOptions, choice, integer } from '../model/options.js';
import type { Outcome } from '../model/outcome.js';
import { breakerKind, rateKind } from '../model/rails.js';
import type { BreakerOptions, RateLimit, ResolvedBreaker, ResolvedRate } from '../model/rails.js';
import { resolveRetryPolicy } from '../model/retry-policy.js';
import type { ResolvedRetryPolicy, RetryPolicy } from '../model/retry-policy.js';

export type DestinationSettings = {
  /** Deliveries under way at once, per relay. Default 20. */
  concurrency?: number;
  /** After this long a delivery is aborted and counts as failed. Default 30,000. */
  timeoutMs?: number;
  /** `stream`: reads the log in order with a cursor of its own, one batch at a time, instead of having deliveries. Default `deliver`. */
  mode?: 'deliver' | 'stream';
  /** Where a new stream begins: with what comes from `now` on, or at the `beginning` of what is kept. Default `now`. */
  from?: 'now' | 'beginning';
  retry?: RetryPolicy;
  /** Behind a dead message, those of its key go on (`continue`), wait for an operator (`block`), or join it (`park`). */
  whenDead?: WhenDead;
  /** `tenant`: tenants with waiting messages take turns, however many each has. Default `none`. */
  fairness?: Fairness;
  /** A check before anything is sent. What it refuses goes to the dead letters, and the destination is not called. */
  guard?: Guard;
  /** What failures mean, by code: the other side's first, then Waybill's; `default` for all others. Default: the destination's own verdict. */
  classify?: Classify;
  /** How many messages in a second, over all relays together. Default: no limit. */
  rate?: RateLimit;
  /** Leaves a destination alone that fails too much: nothing is claimed, no tries are spent. Not for streams. Default `null`. */
  breaker?: BreakerOptions | null;
};

export type WhenDead = 'continue' | 'block' | 'park';
export type Fairness = 'none' | 'tenant';

export type ResolvedSettings = {
  concurrency: number;
  timeoutMs: number;
  mode: 'deliver' | 'stream';
  from: 'now' | 'beginning';
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
   * Called when the signal is aborted; at most one. Where a relay offers it, it is used instead of the signal, which
   * costs more than all else of a call. An outcome that it returns is how the call has ended: the other side
   * has said so already, and only the rest of its answer is missing. Without one, no answer came.
   */
  onAbort?(listener: (reason: Error) => unknown): void;
};

export type Health = { readonly ok: true } | { readonly ok: false; readonly problem: string };

type DestinationBase = {
  readonly kind: string;
  readonly settings: ResolvedSettings;
  /**
   * Called once before the first delivery. Throws for what no waiting cures, such as a library that is not
   * installed; not because the other side is away: then deliveries fail and are retried, until it is back.
   * `relays` of this process will use it, each with as many deliveries at once as its settings say. Default 1.
   */
  open?(relays?: number): Promise<void> | void;
  /** Whether the other side can be reached now and is set up; asked by operators, never before a delivery. */
  health?(context: DeliveryContext): Promise<Health>;
  /** The body of what would be sent, as JSON, for comparing with what another system sent. Default: the payload as it is. */
  render?(message: ClaimedMessage): string;
  /** Called once after the last delivery; ends every connection, also while the other side does not answer. */
  close?(): Promise<void> | void;
};

export type SingleDestination = DestinationBase & {
  deliver(message: ClaimedMessage, context: DeliveryContext): Promise<Outcome> | Outcome;
};

export type BatchDestination = DestinationBase & {
  /** At most this many messages in one call. */
  readonly batchSize: number;
  /** What fails takes those of its key behind it along: a call may hold several of one key. */
  readonly keepsOrder?: boolean;
  /** One outcome per message, in the same order. */
  deliverBatch(
    messages: readonly ClaimedMessage[],
    context: DeliveryContext,
  ): Promise<readonly Outcome[]>;
};

export type Destination = SingleDestination | BatchDestination;

export const settingKinds = {
  concurrency: integer({ min: 1, max: 10_000, default: 20 }),
  timeoutMs: integer({ min: 1, max: 3_600_000, default: 30_000 }),
  mode: choice('deliver', 'stream'),
  from: choice('now', 'beginning'),
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
