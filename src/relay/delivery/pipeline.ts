// Pipeline of one destination at one relay: claimer → dispatcher → settler. It is the only part that knows all three.
// Messages flow one way. What comes back is that there is room again: the settler and the dispatcher report it, and the
// claim gate lets the claimer continue. Each destination has its own pipeline, so a hanging one slows no other.

import type { BreakerReport } from '../../database/definitions.js';
import type { Destination } from '../../destinations/destination.js';
import { guarded } from '../../destinations/guard.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import type { ResolvedBreaker } from '../../core/destination-limits.js';
import type { Emit } from '../../telemetry/events.js';
import { PollSchedule } from '../wakeup/poll-schedule.js';
import type { WakeUp } from '../wakeup/wake-up.js';
import { within } from '../within.js';
import { CallGate } from './call-gate.js';
import { CircuitBreaker } from './circuit-breaker.js';
import { ClaimGate } from './claim-gate.js';
import { Claimer } from './claimer.js';
import type { ClaimerOptions } from './claimer.js';
import type { ConcurrencyLimit } from './concurrency-limit.js';
import type { DeliveredLeases } from './delivered-leases.js';
import { Dispatcher } from './dispatcher.js';
import { DrainLimit } from './drain-limit.js';
import { InFlightCalls } from './in-flight-calls.js';
import { TokenBucket, rateOfShard } from './rate-limiter.js';
import { Settler } from './settler.js';
import type { SettlerOptions } from './settler.js';

export type PipelineOptions = Omit<ClaimerOptions, 'schedule' | 'gate' | 'deliver' | 'fair'> &
  Pick<SettlerOptions, 'settle'> & {
    destination: Destination;
    slots: ConcurrencyLimit;
    delivered: DeliveredLeases;
    wakeUp: WakeUp;
    /** The destination is an endpoint. Default false. */
    isEndpoint?: boolean;
    /** The tenant of an endpoint; not set for a destination of the configuration. */
    tenantId?: string | null;
    /** Living relays that serve the destination, this one included. Default 1. */
    relays?: number;
    /** Databases that share its rate limit, this one included. Default 1. */
    shards?: number;
    /** Drain: stop when nothing is due, or after so many messages. */
    drain: { maxMessages: number } | null;
  };

export class Pipeline {
  readonly name: string;
  readonly destinationId: number;
  readonly isEndpoint: boolean;
  readonly schedule: PollSchedule;
  readonly #emit: Emit;
  readonly #rate: TokenBucket | undefined;
  readonly #breaker: CircuitBreaker | undefined;
  readonly #callGate: CallGate;
  readonly #claimGate: ClaimGate;
  readonly #claimer: Claimer;
  readonly #dispatcher: Dispatcher;
  readonly #settler: Settler;
  readonly #drain: DrainLimit | undefined;
  #breakerTimer: NodeJS.Timeout | undefined;
  #emptied = false;
  #running: Promise<void> = Promise.resolve();

  constructor(options: PipelineOptions) {
    const { name, database, relayId, destinationId, relay, emit, slots, delivered, drain } =
      options;
    const { isEndpoint = false, tenantId, relays = 1, shards = 1 } = options;
    const destination = guarded(options.destination);
    const { rate, breaker, concurrency, fairness, retry } = destination.settings;
    const callSize = 'batchSize' in destination ? destination.batchSize : 1;
    const fair = fairness === 'tenant';
    this.name = name;
    this.destinationId = destinationId;
    this.#emit = emit;
    this.isEndpoint = isEndpoint;
    this.schedule = new PollSchedule(destinationId, options.wakeUp, isEndpoint);
    const inFlight = new InFlightCalls();
    this.#rate = rate && new TokenBucket(rateOfShard(rate, shards), relays);
    this.#breaker = breaker ? this.#makeBreaker(breaker) : undefined;
    this.#callGate = new CallGate({
      concurrency,
      inFlight,
      slots: slots.join(concurrency, tenantId),
      isEndpoint,
      rate: this.#rate,
      breaker: this.#breaker,
    });
    this.#drain = drain ? new DrainLimit(drain.maxMessages, this.#callGate) : undefined;
    this.#settler = new Settler({
      database,
      relayId,
      destination: name,
      destinationId,
      maxAttempts: retry.maxAttempts,
      delivered,
      settle: options.settle,
      emit,
      onGivenUp: (leaseId) => this.#dispatcher.releaseQueued(leaseId),
      onSettled: (newWork) => {
        this.#claimGate.changed();
        // released and retried deliveries may be due sooner than the schedule expects
        if (newWork) this.schedule.wake();
        else if (this.quietSinceMs !== undefined) options.wakeUp.becameIdle(this.schedule);
      },
    });
    this.#dispatcher = new Dispatcher({
      name,
      destination,
      gate: this.#callGate,
      inFlight,
      settler: this.#settler,
      emit,
      onChange: () => this.#claimGate.changed(),
    });
    this.#claimGate = new ClaimGate({
      concurrency: concurrency * callSize,
      batchSize: relay.batchSize,
      batchBytes: relay.batchBytes,
      callSize,
      fair,
      calls: this.#callGate,
      dispatcher: this.#dispatcher,
      settler: this.#settler,
      drain: this.#drain,
    });
    this.#claimer = new Claimer({
      ...options,
      fair,
      gate: this.#claimGate,
      schedule: this.schedule,
      deliver: (leaseId, messages) => this.#deliver(leaseId, messages),
    });
  }

  get leaseIds(): string[] {
    return this.#settler.leaseIds;
  }

  /** Since when it has nothing to do, on the clock of performance.now(); undefined while it has, or its breaker is not closed. */
  get quietSinceMs(): number | undefined {
    return this.#claimGate.isEmpty && this.breaker === undefined
      ? this.schedule.idleSinceMs
      : undefined;
  }

  /** After a drain: nothing was due any more. */
  get emptied(): boolean {
    return this.#emptied;
  }

  /** How many living relays share the destination's rate limit, this one included. */
  share(relays: number): void {
    this.#rate?.share(relays);
  }

  /** Messages wait for the rate limit, or did a moment ago. */
  get limited(): boolean {
    return this.#callGate.limited;
  }

  /** The rate limit or the circuit breaker lets nothing through at present, or calls fail or take long. */
  get isHeldBack(): boolean {
    return this.breaker !== undefined || this.limited || this.#callGate.isWaiting;
  }

  /** The state of the circuit breaker; undefined if it is closed or there is none. */
  get breaker(): BreakerReport | undefined {
    return this.#breaker?.report;
  }

  start(): void {
    this.#running = this.#drain ? this.#runDrain(this.#drain) : this.#claimer.run();
  }

  /** Resolves when the claimer has nothing more to do: at a stop, or at the end of a drain. */
  async ended(): Promise<void> {
    await this.#running;
  }

  async #runDrain(limit: DrainLimit): Promise<void> {
    this.#emptied = await this.#claimer.drain(limit);
  }

  /** Takes a claimed batch over: from now on, its lease is extended and its outcomes must be recorded. */
  async #deliver(leaseId: string, messages: readonly ClaimedMessage[]): Promise<void> {
    this.#settler.open(leaseId, messages);
    if (messages[0]?.quarantined) await this.#deliverAlone(leaseId, messages);
    else this.#dispatcher.add(leaseId, messages);
  }

  /**
   * Sends a quarantined message when nothing else is held or in flight. Nothing is claimed until it has ended. A
   * closed dispatcher releases it at once.
   */
  async #deliverAlone(leaseId: string, messages: readonly ClaimedMessage[]): Promise<void> {
    const isAlone = () => this.#dispatcher.idle && this.#settler.held <= messages.length;
    await this.#claimGate.until(() => this.#dispatcher.isClosed || isAlone());
    // the lease may have been lost meanwhile
    if (this.#settler.holds(leaseId)) this.#dispatcher.add(leaseId, messages);
    if (this.#dispatcher.isHung) this.#dispatcher.releaseQueued();
    await this.#claimGate.until(() => this.#claimGate.isEmpty);
  }

  #makeBreaker(options: ResolvedBreaker): CircuitBreaker {
    const destination = this.name;
    return new CircuitBreaker(options, {
      opened: ({ because, failures, forMs }) => {
        clearTimeout(this.#breakerTimer);
        // a probe is allowed then; timers fire up to a millisecond early
        this.#breakerTimer = setTimeout(() => this.#claimGate.changed(), forMs + 1);
        this.#emit({ name: 'breaker_opened', destination, because, failures, forMs });
      },
      closed: (openForMs) => {
        this.#claimGate.changed();
        this.#emit({ name: 'breaker_closed', destination, openForMs });
      },
    });
  }

  /** Another relay took the lease over: send nothing more of it. */
  lost(leaseId: string): void {
    this.#dispatcher.releaseQueued(leaseId);
    // its last outcomes may just have been recorded, with the answer on its way
    if (this.#settler.isFlushing(leaseId)) return;
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
    this.#callGate.close();
    clearTimeout(this.#breakerTimer);
  }
}

async function poll(deadlineMs: number, condition: () => boolean): Promise<void> {
  while (!condition() && performance.now() < deadlineMs) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
