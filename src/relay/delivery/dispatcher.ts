// Dispatcher: calls the destination with claimed messages in the order of the claim, with a concurrency limit and a
// timeout. In a lane, the next message is sent after the one before it was delivered; after any other outcome the
// rest of the lane is released. A call that ignores its abort keeps an extra slot until it returns, so the number of
// calls stays bounded even if the destination hangs.

import type { Destination } from '../../destinations/destination.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { classified } from '../../core/classify.js';
import { outcomesMissing, release, retry, soundOutcome, thrown } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import { isThenable } from '../../core/thenable.js';
import type { Emit } from '../../telemetry/events.js';
import { hasFailed } from './circuit-breaker.js';
import type { CircuitBreaker } from './circuit-breaker.js';
import { Call, lanesOf } from './call.js';
import type { Lane } from './call.js';
import type { TokenBucket } from './rate-limiter.js';
import { FailureThrottle } from './failure-throttle.js';
import { traceSend } from '../../telemetry/tracing.js';
import type { Settler } from './settler.js';
import type { Share } from './concurrency-limit.js';
import { InFlightCalls } from './in-flight-calls.js';
import { endUnreadable } from './unreadable.js';
import { DispatchQueue } from './dispatch-queue.js';

/** A second's worth of tokens, and half a second on top. */
const limitedForMs = 1500;

export type DispatcherOptions = {
  name: string;
  destination: Destination;
  settler: Settler;
  slots: Share;
  /** No call begins without a token for each of its messages. */
  rate: TokenBucket | undefined;
  breaker: CircuitBreaker | undefined;
  emit: Emit;
  onIdle: () => void;
};

export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #queue: DispatchQueue<Call>;
  /** Quarantined calls wait until everything else has ended, including the lanes that continue meanwhile. */
  readonly #quarantined = new DispatchQueue<Call>();
  readonly #inFlight = new InFlightCalls();
  /** Calls that have timed out but not returned. */
  #overdue = 0;
  readonly #throttle: FailureThrottle;
  #pumping = false;
  #stopping = false;
  /** Set while the next call waits for tokens. */
  #tokenTimer: NodeJS.Timeout | undefined;
  /** When a call last had to wait for tokens. */
  #limitedMs = Number.NEGATIVE_INFINITY;
  readonly #watch: NodeJS.Timeout;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#queue = new DispatchQueue(
      options.destination.settings.fairness === 'tenant'
        ? ({ messages }) => messages[0]?.tenantId ?? ''
        : undefined,
    );
    const { timeoutMs, concurrency } = options.destination.settings;
    this.#throttle = new FailureThrottle(concurrency);
    this.#watch = setInterval(
      () => this.#checkTimeouts(),
      Math.min(Math.max(timeoutMs / 10, 5), 250),
    );
  }

  get queued(): number {
    return this.#queue.size + this.#quarantined.size;
  }

  /** How long the next call has been queued. */
  get waitedMs(): number {
    const call = this.#queue.first() ?? this.#quarantined.first();
    return call === undefined ? 0 : performance.now() - call.claimedMs;
  }

  /** As many calls as the concurrency allows have ignored their abort: no call can start. */
  get hung(): boolean {
    return this.#overdue >= this.#options.destination.settings.concurrency;
  }

  /** A call waits for tokens, or did recently. Between two claims no call may wait although the limit is used up. */
  get limited(): boolean {
    return performance.now() - this.#limitedMs < limitedForMs;
  }

  get idle(): boolean {
    return this.queued === 0 && this.#inFlight.size === 0;
  }

  /** Another call could begin, and none is queued. */
  get wantsCalls(): boolean {
    return this.queued === 0 && this.#inFlight.size < this.#throttle.concurrency;
  }

  add(leaseId: string, messages: readonly ClaimedMessage[]): void {
    const { settler } = this.#options;
    settler.open(leaseId, messages);
    const sendable = endUnreadable(settler, leaseId, messages);
    this.#enqueue(
      sendable.filter(({ keyId }) => keyId === null),
      (part) => new Call(leaseId, part),
    );
    this.#enqueueLanes(leaseId, lanesOf(sendable));
    if (this.#stopping || settler.isPausing || this.#options.breaker?.state === 'open')
      return this.releaseQueued();
    // later, so the claimer asks for the next batch first and the database works while this one is sent
    setImmediate(this.#pumpLater);
  }

  /** In calls of the destination's batch size. */
  #enqueue<T>(items: readonly T[], callOf: (part: readonly T[]) => Call): void {
    const { destination } = this.#options;
    const size = 'batchSize' in destination ? destination.batchSize : 1;
    for (let start = 0; start < items.length; start += size) {
      const call = callOf(items.slice(start, start + size));
      (call.messages[0]?.quarantined ? this.#quarantined : this.#queue).push(call);
    }
  }

  /** The next message of each lane: a call never holds two of one key. */
  #enqueueLanes(leaseId: string, lanes: readonly Lane[]): void {
    this.#enqueue(lanes, (part) => {
      const messages = part.map((lane) => lane.messages[lane.next++] as ClaimedMessage);
      return new Call(leaseId, messages, part);
    });
  }

  /** A queued call may be able to start now. */
  resume(): void {
    this.#pump();
  }

  /** Releases queued messages: all of them, or those of one lease. */
  releaseQueued(leaseId?: string): void {
    const isMeant = (call: Call): boolean => leaseId === undefined || call.leaseId === leaseId;
    const waiting = [...this.#queue.remove(isMeant), ...this.#quarantined.remove(isMeant)];
    for (const call of waiting)
      this.#settle(
        call,
        call.messages.map(() => release()),
        null,
      );
  }

  /** Starts no further call. Releases queued messages, and those that are added later. */
  stop(): void {
    this.#stopping = true;
    this.releaseQueued();
  }

  /** Ends the wait at a stop: calls that have not answered count as failed tries. */
  abortAll(): void {
    for (const call of this.#inFlight.takeWhile(() => true))
      this.#giveUp(call, 'the relay is stopping', () =>
        retry({ code: 'stopped', message: 'the relay stopped before an answer came' }),
      );
  }

  close(): void {
    clearInterval(this.#watch);
    clearTimeout(this.#tokenTimer);
  }

  #pump(): void {
    // a destination that answers synchronously would nest calls as deep as the queue is long
    if (this.#pumping) return;
    this.#pumping = true;
    const { destination, slots } = this.#options;
    const { concurrency } = destination.settings;
    for (;;) {
      const line = this.#queue.size > 0 ? this.#queue : this.#quarantined;
      const call = line.first();
      if (
        call === undefined ||
        !this.#isItsTurn(call) ||
        this.#inFlight.size >= this.#throttle.concurrency ||
        this.#inFlight.size + this.#overdue >= 2 * concurrency ||
        this.#options.breaker?.room === 0 ||
        !this.#hasTokens(call) ||
        !slots.take(this.#pumpLater)
      )
        break;
      line.shift();
      this.#start(call);
    }
    this.#pumping = false;
  }

  #hasTokens(call: Call): boolean {
    const waitMs = this.#options.rate?.waitMs(call.messages.length) ?? 0;
    if (waitMs === 0) return true;
    this.#limitedMs = performance.now();
    this.#tokenTimer ??= setTimeout(() => {
      this.#tokenTimer = undefined;
      this.#pump();
    }, Math.ceil(waitMs));
    return false;
  }

  /** A quarantined message is sent alone: when no other delivery of this destination is held or in flight. */
  #isItsTurn(call: Call): boolean {
    if (!call.messages[0]?.quarantined) return !this.#quarantinedInFlight;
    return this.#inFlight.size === 0 && this.#options.settler.held === call.messages.length;
  }

  get #quarantinedInFlight(): boolean {
    return this.#inFlight.first?.messages[0]?.quarantined ?? false;
  }

  readonly #pumpLater = (): void => this.#pump();

  #start(call: Call): void {
    const { rate, breaker } = this.#options;
    call.startedMs = performance.now();
    rate?.take(call.messages.length);
    call.ticket = breaker?.begin() ?? 0;
    this.#inFlight.add(call);
    call.trace = traceSend(this.#options.name, call.messages);
    try {
      const result = call.trace ? call.trace.run(() => this.#deliver(call)) : this.#deliver(call);
      if (isThenable(result)) {
        Promise.resolve(result).then(
          (outcomes) => this.#answered(call, outcomes),
          (error: unknown) => this.#failed(call, error),
        );
      } else {
        this.#answered(call, result);
      }
    } catch (error) {
      this.#failed(call, error);
    }
  }

  #deliver(call: Call): Promise<Outcome | readonly Outcome[]> | Outcome {
    const { destination } = this.#options;
    if ('deliverBatch' in destination) return destination.deliverBatch(call.messages, call);
    return destination.deliver(call.messages[0] as ClaimedMessage, call);
  }

  #answered(call: Call, outcomes: unknown): void {
    if (!('deliverBatch' in this.#options.destination))
      return this.#finish(call, () => soundOutcome(outcomes));
    const count = Array.isArray(outcomes) ? outcomes.length : 0;
    if (!Array.isArray(outcomes) || count !== call.messages.length)
      return this.#finish(call, () => outcomesMissing(count, call.messages.length));
    this.#finish(call, (index) => soundOutcome(outcomes[index]));
  }

  #failed(call: Call, error: unknown): void {
    this.#finish(call, () => thrown(error));
  }

  #finish(call: Call, outcomeOf: (index: number) => Outcome): void {
    if (call.ended) {
      if (call.overdue) this.#overdue -= 1;
      this.#pump();
      this.#options.onIdle();
      return;
    }
    call.ended = true;
    this.#inFlight.remove(call);
    const latencyMs = performance.now() - call.startedMs;
    const { breaker, destination } = this.#options;
    const { classify } = destination.settings;
    const outcomes = call.messages.map((_message, index) => classified(outcomeOf(index), classify));
    this.#settle(call, outcomes, latencyMs);
    const failed = hasFailed(outcomes);
    this.#throttle.ended(failed);
    breaker?.end(call.ticket, failed);
    if (this.#options.settler.isPausing) this.releaseQueued();
    this.#options.slots.give();
    this.#pump();
    if (this.idle) this.#options.onIdle();
  }

  /**
   * If the destination already knows the outcome (for example, only the response body is missing), that outcome
   * counts.
   */
  #giveUp(call: Call, reason: string, unanswered: () => Outcome): void {
    const known = call.abort(new Error(reason));
    this.#finish(call, known === undefined ? unanswered : () => soundOutcome(known));
  }

  #settle(call: Call, outcomes: readonly Outcome[], latencyMs: number | null): void {
    const { settler } = this.#options;
    const open: Lane[] = [];
    call.messages.forEach((message, index) => {
      const outcome = outcomes[index] as Outcome;
      call.trace?.end(index, outcome);
      settler.end(call.leaseId, message, outcome, latencyMs);
      const lane = call.lanes?.[index];
      if (lane === undefined || lane.next === lane.messages.length) return;
      const mayContinue = !this.#stopping && this.#options.breaker?.state !== 'open';
      if (outcome.kind === 'delivered' && settler.holds(call.leaseId) && mayContinue)
        open.push(lane);
      else
        for (const follower of lane.messages.slice(lane.next))
          settler.end(call.leaseId, follower, release(), null);
    });
    if (open.length > 0) this.#enqueueLanes(call.leaseId, open);
  }

  /** Releases the queue: another relay may have more success. */
  #hang(): void {
    this.#options.emit({
      name: 'destination_hung',
      destination: this.#options.name,
      overdue: this.#overdue,
    });
    this.releaseQueued();
  }

  /**
   * In-flight calls are in the order of their start and share one timeout, so the check ends at the first one in
   * time.
   */
  #checkTimeouts(): void {
    const { timeoutMs } = this.#options.destination.settings;
    const now = performance.now();
    const wasHung = this.hung;
    for (const call of this.#inFlight.takeWhile(({ startedMs }) => now - startedMs >= timeoutMs)) {
      call.overdue = true;
      this.#overdue += 1;
      const message = `no answer within ${timeoutMs} ms`;
      this.#giveUp(call, message, () => retry({ code: 'timeout', message }));
    }
    // calls that heed their abort have returned by then
    if (!wasHung && this.hung)
      setImmediate(() => {
        if (this.hung) this.#hang();
      });
  }
}
