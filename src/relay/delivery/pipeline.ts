// Pipeline of one destination at one relay: claimer → dispatcher → settler, with back-pressure from the settler to
// the claimer. Each destination has its own pipeline, so a hanging one slows no other.

import type { BreakerReport } from '../../database/definitions.js';
import type { Destination } from '../../destinations/destination.js';
import { guarded } from '../../destinations/guard.js';
import type { ResolvedBreaker } from '../../core/destination-limits.js';
import type { Emit } from '../../telemetry/events.js';
import { CircuitBreaker } from './circuit-breaker.js';
import { Claimer } from './claimer.js';
import type { ClaimerOptions } from './claimer.js';
import { Dispatcher } from './dispatcher.js';
import type { ListenerRegistry } from '../wakeup/listener-registry.js';
import type { DuePoller } from '../wakeup/due-poller.js';
import type { ResolvedRelayOptions } from '../options.js';
import { TokenBucket, rateOfShard } from './rate-limiter.js';
import { Settler } from './settler.js';
import { PollSchedule } from '../wakeup/poll-schedule.js';
import { within } from '../within.js';
import type { Share, ConcurrencyLimit } from './concurrency-limit.js';

export type PipelineOptions = Omit<
  ClaimerOptions,
  'schedule' | 'dispatcher' | 'settler' | 'breaker' | 'rate' | 'concurrency' | 'callSize' | 'fair'
> & {
  destination: Destination;
  slots: ConcurrencyLimit;
  listeners: ListenerRegistry;
  duePoller: DuePoller;
  /** The tenant of an endpoint; not set for a destination of the configuration. */
  tenantId?: string | null;
  /** Living relays that serve the destination, this one included. Default 1. */
  relays?: number;
  /** Databases that share its rate limit, this one included. Default 1. */
  shards?: number;
};

export class Pipeline {
  readonly name: string;
  readonly destinationId: number;
  readonly schedule: PollSchedule;
  readonly #emit: Emit;
  readonly #claimer: Claimer;
  readonly #dispatcher: Dispatcher;
  readonly #settler: Settler;
  readonly #slots: Share;
  readonly #rate: TokenBucket | undefined;
  readonly #breaker: CircuitBreaker | undefined;
  #breakerSince: string | undefined;
  #breakerTimer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor({
    slots,
    listeners,
    duePoller,
    tenantId,
    relays = 1,
    shards = 1,
    ...options
  }: PipelineOptions) {
    const { name, database, relayId, destinationId, relay, emit } = options;
    const destination = guarded(options.destination);
    const { rate, breaker, concurrency, fairness } = destination.settings;
    const callSize = 'batchSize' in destination ? destination.batchSize : 1;
    this.name = name;
    this.destinationId = destinationId;
    this.#emit = emit;
    this.schedule = new PollSchedule({
      database,
      destinationId,
      pollMs: relay.pollMs,
      maySilence: servesAll(relay),
      listeners,
      duePoller,
    });
    this.#settler = new Settler({
      database,
      relayId,
      destination: name,
      destinationId,
      maxAttempts: destination.settings.retry.maxAttempts,
      emit,
      onGivenUp: (leaseId) => this.#dispatcher.releaseQueued(leaseId),
      onSettled: (newWork) => {
        this.#dispatcher.resume();
        this.#claimer.roomMayBeFree();
        // released and retried deliveries may be due sooner than the schedule expects
        if (newWork) this.schedule.wake();
      },
    });
    this.#slots = slots.join(concurrency, tenantId);
    this.#rate = rate && new TokenBucket(rateOfShard(rate, shards), relays);
    this.#breaker = breaker ? this.#makeBreaker(breaker) : undefined;
    this.#dispatcher = new Dispatcher({
      name,
      destination,
      settler: this.#settler,
      slots: this.#slots,
      rate: this.#rate,
      breaker: this.#breaker,
      emit,
      onIdle: () => this.#claimer.roomMayBeFree(),
    });
    this.#claimer = new Claimer({
      ...options,
      concurrency: concurrency * callSize,
      callSize,
      fair: fairness === 'tenant',
      rate: this.#rate,
      breaker: this.#breaker,
      schedule: this.schedule,
      dispatcher: this.#dispatcher,
      settler: this.#settler,
    });
  }

  get leaseIds(): string[] {
    return this.#settler.leaseIds;
  }

  get emptied(): boolean {
    return this.#claimer.emptied;
  }

  /** How many living relays share the destination's rate limit, this one included. */
  share(relays: number): void {
    this.#rate?.share(relays);
  }

  /** Messages wait for the rate limit, or did a moment ago. */
  get limited(): boolean {
    return this.#dispatcher.limited || this.#rate?.soon === 0;
  }

  /** The state of the circuit breaker; undefined if it is closed or there is none. */
  get breaker(): BreakerReport | undefined {
    const state = this.#breaker?.state ?? 'closed';
    if (state === 'closed' || this.#breakerSince === undefined) return undefined;
    return { state, since: this.#breakerSince, failures: this.#breaker?.failures ?? 0 };
  }

  #makeBreaker(options: ResolvedBreaker): CircuitBreaker {
    const destination = this.name;
    return new CircuitBreaker(options, {
      opened: ({ because, failures, forMs }) => {
        if (because !== 'probe') this.#breakerSince = new Date().toISOString();
        this.#dispatcher.releaseQueued();
        clearTimeout(this.#breakerTimer);
        // a probe is allowed then; timers fire up to a millisecond early
        this.#breakerTimer = setTimeout(() => this.#claimer.roomMayBeFree(), forMs + 1);
        this.#emit({ name: 'breaker_opened', destination, because, failures, forMs });
      },
      closed: (openForMs) => {
        this.#claimer.roomMayBeFree();
        this.#emit({ name: 'breaker_closed', destination, openForMs });
      },
    });
  }

  /** `idle`: the first claim is left to the due poller, which knows whether there is work. */
  start({ idle = false } = {}): void {
    this.#running = this.#claimer.run(idle);
  }

  /** Resolves when the claimer has nothing more to do: at a stop, or at the end of a drain. */
  async ended(): Promise<void> {
    await this.#running;
  }

  /** Another relay took the lease over: send nothing more of it. */
  lost(leaseId: string): void {
    this.#dispatcher.releaseQueued(leaseId);
    // its last outcomes may just have been recorded, with the answer on its way
    if (this.#settler.isTelling(leaseId)) return;
    const messageIds = this.#settler.forget(leaseId);
    const noticedBy = 'extension';
    this.#emit({ name: 'lease_lost', destination: this.name, leaseId, messageIds, noticedBy });
  }

  /** Finishes or releases the deliveries in hand, until `deadlineMs` (on the clock of performance.now()). */
  async stop(deadlineMs: number): Promise<void> {
    this.#claimer.stop();
    this.#dispatcher.stop();
    await within(deadlineMs, this.#running);
    // a third of the time is left for recording outcomes
    const callsUntilMs = performance.now() + ((deadlineMs - performance.now()) * 2) / 3;
    await poll(callsUntilMs, () => this.#dispatcher.idle);
    this.#dispatcher.abortAll();
    await poll(deadlineMs, () => this.#settler.held === 0);
    this.#settler.stop();
    this.#dispatcher.close();
    this.#slots.leave();
    clearTimeout(this.#breakerTimer);
  }
}

/** False for a relay that serves only some tenants or one namespace. */
export function servesAll({ tenantIds, namespace }: ResolvedRelayOptions): boolean {
  return tenantIds === undefined && namespace === undefined;
}

async function poll(deadlineMs: number, condition: () => boolean): Promise<void> {
  while (!condition() && performance.now() < deadlineMs) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
