// Collects how deliveries ended and tells the database, many at a time: a lease that is complete at once,
// others after a short while. Two flushes of one lease never run together. An ending is never forgotten:
// a flush that fails is repeated, and the database recognises what it has recorded already.

import type { Database } from '../database/connection.js';
import { isTransient } from '../database/connection.js';
import { deliverLease, settle } from '../database/claims.js';
import type { Delivery, Ending } from '../database/claims.js';
import { errorText } from '../errors.js';
import type { ClaimedMessage } from '../model/claimed-message.js';
import type { Failure, Outcome } from '../model/outcome.js';
import type { Emit } from '../telemetry/events.js';

type HeldLease = {
  readonly id: string;
  /** In the order of the claim. */
  messages: readonly ClaimedMessage[];
  /** Messages whose ending has not been reported yet. */
  open: number;
  pending: Ending[];
  flushing: boolean;
  flushDue: boolean;
  /** Holds lanes: they wait for its endings. */
  readonly keyed: boolean;
  readonly bytes: number;
};

export type SettlerOptions = {
  database: Database;
  relayId: string;
  destination: string;
  destinationId: number;
  maxAttempts: number;
  emit: Emit;
  /** A lease whose endings cannot be recorded: nothing more of it should be sent. */
  onGivenUp: (leaseId: string) => void;
  /** Called after each flush: there may be room, or new work. */
  onSettled: (newWork: boolean) => void;
};

/** How long endings of an incomplete lease may wait for company; longer in a large lease, unless lanes wait for them. */
const flushMs = 20;
const largeFlushMs = 100;
const largeLease = 500;

const maxBackoffMs = 2000;

export class Settler {
  readonly #options: SettlerOptions;
  readonly #leases = new Map<string, HeldLease>();
  #abandoned = false;
  #held = 0;
  #heldBytes = 0;
  /** Endings that pause the destination and are not recorded yet. */
  #pauses = 0;

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  /** Messages whose ending is not recorded yet. */
  get held(): number {
    return this.#held;
  }

  /** Payload bytes of the leases that are not done with. */
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

  /** The database is being told about it at this moment: the answer will say whose it is. */
  isTelling(leaseId: string): boolean {
    return this.#leases.get(leaseId)?.flushing ?? false;
  }

  open(leaseId: string, messages: readonly ClaimedMessage[]): void {
    const bytes = messages.reduce((sum, message) => sum + message.payloadText.length, 0);
    this.#leases.set(leaseId, {
      id: leaseId,
      messages,
      open: messages.length,
      pending: [],
      flushing: false,
      flushDue: false,
      keyed: messages.some(({ streamId }) => streamId !== null),
      bytes,
    });
    this.#held += messages.length;
    this.#heldBytes += bytes;
  }

  end(leaseId: string, message: ClaimedMessage, outcome: Outcome, latencyMs: number | null): void {
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

  /** The lease belongs to somebody else: whatever is still to be told about it is void. */
  forget(leaseId: string): void {
    const lease = this.#leases.get(leaseId);
    if (lease === undefined) return;
    this.#close(lease);
    this.#held -= lease.open + lease.pending.length;
    this.#pauses -= pausesOf(lease.pending);
    // or a flush that is due would count them once more
    lease.pending = [];
    this.#options.onSettled(false);
  }

  /** Stops repeating failed flushes: what is not recorded by now is left to the leases' expiry. */
  abandon(): void {
    this.#abandoned = true;
    for (const id of this.leaseIds) this.forget(id);
  }

  #close(lease: HeldLease): void {
    this.#leases.delete(lease.id);
    this.#heldBytes -= lease.bytes;
    lease.messages = [];
  }

  #flushLater(lease: HeldLease): void {
    lease.flushDue = true;
    setTimeout(
      () => {
        lease.flushDue = false;
        void this.#flush(lease);
      },
      lease.keyed || lease.messages.length < largeLease ? flushMs : largeFlushMs,
    );
  }

  async #flush(lease: HeldLease): Promise<void> {
    if (lease.flushing) return;
    lease.flushing = true;
    while (lease.pending.length > 0 && !this.#abandoned) {
      const endings = lease.pending;
      lease.pending = [];
      await this.#settleSurely(lease, endings);
      this.#held -= endings.length;
      this.#pauses -= pausesOf(endings);
      if (!this.#leases.has(lease.id)) return this.#options.onSettled(false);
      if (lease.open === 0 && lease.pending.length === 0) this.#close(lease);
      // what went back is waiting again, and so may be what stood behind the end of a lane
      this.#options.onSettled(
        lease.keyed || endings.some(({ outcome }) => outcome.kind !== 'delivered'),
      );
    }
    lease.flushing = false;
  }

  /** As the database decides it. */
  #dies({ message, outcome }: Ending): boolean {
    return (
      outcome.kind === 'reject' ||
      (outcome.kind === 'retry' && message.tries >= this.#options.maxAttempts)
    );
  }

  async #settleSurely(lease: HeldLease, endings: readonly Ending[]): Promise<void> {
    const { database, relayId, destination, destinationId, emit } = this.#options;
    for (let backoffMs = 50; !this.#abandoned; backoffMs = Math.min(backoffMs * 2, maxBackoffMs)) {
      const startedMs = performance.now();
      try {
        const deliveries = deliveredWhole(lease, endings);
        const { lost, paused } =
          deliveries !== null && (await deliverLease(database, lease.id, relayId, deliveries))
            ? { lost: [], paused: false }
            : await settle(database, lease.id, relayId, destinationId, endings);
        if (lost.length > 0)
          emit({ name: 'lease_lost', destination, leaseId: lease.id, messageIds: lost });
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
        emit({ name: 'trouble', what: 'settle', error: errorText(error) });
        // what does not pass by itself will not pass at all; the leases' expiry takes care of it
        if (!isTransient(error)) {
          this.#options.onGivenUp(lease.id);
          return this.forget(lease.id);
        }
        await new Promise((resolve) => setTimeout(resolve, backoffMs));
      }
    }
  }
}

/** What there is to tell, in the order of the claim, if these endings are all of the lease and all were delivered. */
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

/** The failure that the database was given as the reason: the first one. */
function pausing(endings: readonly Ending[]): Failure {
  const found = endings.find(({ outcome }) => outcome.kind === 'pause')?.outcome;
  return found?.kind === 'pause' ? found : { code: 'unknown' };
}

function countOutcomes(endings: readonly Ending[]): Record<Outcome['kind'], number> {
  const counts = { delivered: 0, retry: 0, reject: 0, pause: 0, release: 0 };
  for (const { outcome } of endings) counts[outcome.kind] += 1;
  return counts;
}
