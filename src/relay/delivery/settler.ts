// Settler: records the outcomes of deliveries in the database, many at a time. A complete lease is recorded at once,
// an incomplete one after a short delay. Two flushes of one lease never run together. A flush that fails for a
// transient reason is repeated until it succeeds, and the database recognises outcomes that it has recorded already.
// After any other error, the lease is given up, and its messages wait until it expires.

import type { Database } from '../../database/connection.js';
import { isTransient } from '../../database/connection.js';
import { settle } from '../../database/claims.js';
import type { Delivery, Ending, SettleRequest, SettleResult } from '../../database/claims.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import type { Conclusion, Failure } from '../../core/outcome.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import type { DeliveredLeases } from './delivered-leases.js';

type HeldLease = {
  readonly id: string;
  /** In the order of the claim. */
  messages: readonly ClaimedMessage[];
  /** Messages without an outcome so far. */
  open: number;
  /** Ids of messages whose outcome is recorded, while others are still open. */
  readonly recorded: Set<string>;
  pending: Ending[];
  flushing: boolean;
  flushDue: boolean;
  /** The lease holds lanes, which stay locked until its outcomes are recorded. */
  readonly keyed: boolean;
  readonly bytes: number;
};

export type SettlerOptions = {
  database: Database;
  relayId: string;
  destination: string;
  destinationId: number;
  maxAttempts: number;
  delivered: DeliveredLeases;
  /** Settles together with other pipelines. Without it, each settle is a statement of its own. */
  settle?: ((request: SettleRequest) => Promise<SettleResult>) | undefined;
  emit: Emit;
  /** The lease is lost, or its outcomes cannot be recorded: nothing more of it should be sent. */
  onGivenUp: (leaseId: string) => void;
  /** Called after each flush: there may be room for a claim, or new work. */
  onSettled: (newWork: boolean) => void;
};

/**
 * How long outcomes of an incomplete lease are collected, unless lanes wait for them: longer in a large lease; and for an
 * endpoint, which is one of many, long enough that most leases are complete, because these are recorded together.
 */
const flushMs = 20;
const largeFlushMs = 100;
const endpointFlushMs = 500;
const largeLease = 500;

const maxBackoffMs = 2000;

export class Settler {
  readonly #options: SettlerOptions;
  readonly #leases = new Map<string, HeldLease>();
  #stopped = false;
  #held = 0;
  #heldBytes = 0;
  /** Outcomes that pause the destination and are not recorded yet. */
  #pauses = 0;

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  /** Messages whose outcome is not recorded yet. */
  get held(): number {
    return this.#held;
  }

  /** The size of the payloads of the open leases, in characters. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** The destination is about to be paused: nothing should be claimed or sent until the database knows. */
  get isPausing(): boolean {
    return this.#pauses > 0;
  }

  get leaseIds(): string[] {
    return [...this.#leases.keys()];
  }

  holds(leaseId: string): boolean {
    return this.#leases.has(leaseId);
  }

  /** A flush of this lease is running; its result will say whether the lease is still held. */
  isFlushing(leaseId: string): boolean {
    return this.#leases.get(leaseId)?.flushing ?? false;
  }

  open(leaseId: string, messages: readonly ClaimedMessage[]): void {
    const bytes = messages.reduce((sum, message) => sum + message.payloadText.length, 0);
    this.#leases.set(leaseId, {
      id: leaseId,
      messages,
      open: messages.length,
      recorded: new Set(),
      pending: [],
      flushing: false,
      flushDue: false,
      keyed: messages.some(({ keyId }) => keyId !== null),
      bytes,
    });
    this.#held += messages.length;
    this.#heldBytes += bytes;
  }

  end(
    leaseId: string,
    message: ClaimedMessage,
    outcome: Conclusion,
    latencyMs: number | null,
  ): void {
    const lease = this.#leases.get(leaseId);
    if (lease === undefined) return;
    lease.open -= 1;
    lease.pending.push({ message, outcome, latencyMs });
    if (outcome.kind === 'pause') this.#pauses += 1;
    if (outcome.kind === 'retry' || outcome.kind === 'reject' || outcome.kind === 'pause') {
      const { destination } = this.#options;
      this.#options.emit({
        name: 'delivery_failed',
        destination,
        messageId: message.id,
        tries: message.tries,
        outcome,
      });
    }
    if (lease.open === 0 || outcome.kind === 'pause') void this.#flush(lease);
    else if (!lease.flushDue) this.#flushLater(lease);
  }

  /**
   * Gives a lease up: it is lost, or its outcomes cannot be recorded. Returns the messages without a recorded outcome.
   */
  forget(leaseId: string): string[] {
    const lease = this.#leases.get(leaseId);
    if (lease === undefined) return [];
    const ids = lease.messages.map(({ id }) => id).filter((id) => !lease.recorded.has(id));
    this.#close(lease);
    this.#held -= lease.open + lease.pending.length;
    this.#pauses -= pausesOf(lease.pending);
    // or the flush that is due would subtract them again
    lease.pending = [];
    this.#options.onSettled(false);
    return ids;
  }

  /** Stops repeating failed flushes. Deliveries without a recorded outcome wait until their leases expire. */
  stop(): void {
    this.#stopped = true;
    for (const id of this.leaseIds) this.forget(id);
  }

  #close(lease: HeldLease): void {
    this.#leases.delete(lease.id);
    this.#heldBytes -= lease.bytes;
    lease.messages = [];
  }

  #flushLater(lease: HeldLease): void {
    lease.flushDue = true;
    setTimeout(() => {
      lease.flushDue = false;
      void this.#flush(lease);
    }, this.#collectMs(lease));
  }

  #collectMs({ keyed, messages }: HeldLease): number {
    if (keyed) return flushMs;
    if (this.#options.settle !== undefined) return endpointFlushMs;
    return messages.length >= largeLease ? largeFlushMs : flushMs;
  }

  async #flush(lease: HeldLease): Promise<void> {
    if (lease.flushing) return;
    lease.flushing = true;
    while (lease.pending.length > 0 && !this.#stopped) {
      const endings = lease.pending;
      lease.pending = [];
      await this.#settleSurely(lease, endings);
      this.#held -= endings.length;
      this.#pauses -= pausesOf(endings);
      if (!this.#leases.has(lease.id)) return this.#options.onSettled(false);
      if (lease.open === 0 && lease.pending.length === 0) this.#close(lease);
      else for (const { message } of endings) lease.recorded.add(message.id);
      // retried and released deliveries are pending again, and the end of a lane frees its next message
      this.#options.onSettled(
        lease.keyed || endings.some(({ outcome }) => outcome.kind !== 'delivered'),
      );
    }
    lease.flushing = false;
  }

  /** Whether the delivery becomes a dead letter; the database decides by the same rule. */
  #dies({ message, outcome }: Ending): boolean {
    return (
      outcome.kind === 'reject' ||
      (outcome.kind === 'retry' && message.tries >= this.#options.maxAttempts)
    );
  }

  /** The lease is another relay's by now: all of it, not only the messages of this flush. */
  #lose(lease: HeldLease): void {
    const { destination, emit } = this.#options;
    const messageIds = this.#giveUp(lease);
    emit({ name: 'lease_lost', destination, leaseId: lease.id, messageIds, noticedBy: 'settle' });
  }

  /** Returns the messages without a recorded outcome. */
  #giveUp(lease: HeldLease): string[] {
    this.#options.onGivenUp(lease.id);
    return this.forget(lease.id);
  }

  #settle(request: SettleRequest): Promise<SettleResult> {
    const { database, relayId, settle: shared } = this.#options;
    // a pause locks the destination: alone, so that two statements never wait for each other's locks
    return shared === undefined || pausesOf(request.endings) > 0
      ? settle(database, relayId, request)
      : shared(request);
  }

  async #settleSurely(lease: HeldLease, endings: readonly Ending[]): Promise<void> {
    const { destination, destinationId, delivered, emit } = this.#options;
    for (let backoffMs = 50; !this.#stopped; backoffMs = Math.min(backoffMs * 2, maxBackoffMs)) {
      const startedMs = performance.now();
      try {
        const deliveries = deliveredWhole(lease, endings);
        const { lost, paused } =
          deliveries !== null && (await delivered.end(lease.id, deliveries, lease.keyed))
            ? { lost: [], paused: false }
            : await this.#settle({ leaseId: lease.id, destinationId, endings });
        if (lost.length > 0) this.#lose(lease);
        if (paused) emit({ name: 'destination_paused', destination, failure: pausing(endings) });
        emit({
          name: 'settled',
          destination,
          counts: countOutcomes(endings),
          died: endings.filter((ending) => this.#dies(ending)).length,
          latenciesMs: endings.flatMap(({ latencyMs }) => (latencyMs === null ? [] : [latencyMs])),
          ms: performance.now() - startedMs,
        });
        return;
      } catch (error) {
        emit(troubleOf('settle', error));
        // a permanent error does not go away by retrying; the deliveries wait until the lease expires
        if (!isTransient(error)) {
          this.#giveUp(lease);
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, backoffMs));
      }
    }
  }
}

/**
 * The deliveries in the order of the claim, if these outcomes complete the lease and all are `delivered`; else null.
 */
function deliveredWhole(
  { messages }: HeldLease,
  endings: readonly Ending[],
): readonly Delivery[] | null {
  if (endings.length < messages.length) return null;
  const deliveries = new Map<ClaimedMessage, Delivery>();
  for (const { message, outcome, latencyMs } of endings) {
    if (outcome.kind !== 'delivered') return null;
    deliveries.set(message, { latencyMs, receipt: outcome });
  }
  return messages.map(
    (message) => deliveries.get(message) ?? { latencyMs: null, receipt: undefined },
  );
}

function pausesOf(endings: readonly Ending[]): number {
  return endings.filter(({ outcome }) => outcome.kind === 'pause').length;
}

/** The failure that the database stores as the reason of the pause: the first one. */
function pausing(endings: readonly Ending[]): Failure {
  const found = endings.find(({ outcome }) => outcome.kind === 'pause')?.outcome;
  return found?.kind === 'pause' ? found : { code: 'unknown' };
}

function countOutcomes(endings: readonly Ending[]): Record<Conclusion['kind'], number> {
  const counts = { delivered: 0, retry: 0, reject: 0, pause: 0, release: 0, discard: 0 };
  for (const { outcome } of endings) counts[outcome.kind] += 1;
  return counts;
}
