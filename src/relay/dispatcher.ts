// Hands claimed messages to the destination: so many at once, fewer while it takes nothing, each with a timeout, in
// the order of the claim. Of a lane, the messages of one key, the next one is sent when the one before it was
// delivered; after one that was not, the rest of the lane goes back. A call that ignores its abort keeps a slot of
// its own until it returns, so that the number of calls stays bounded whatever the destination does.

import type { Destination } from '../destinations/destination.js';
import type { ClaimedMessage } from '../model/claimed-message.js';
import { classified } from '../model/classify.js';
import { outcomesMissing, reject, release, retry, soundOutcome, thrown } from '../model/outcome.js';
import type { Outcome } from '../model/outcome.js';
import { isThenable } from '../model/thenable.js';
import type { Emit } from '../telemetry/events.js';
import { hasFailed } from './breaker.js';
import type { Breaker } from './breaker.js';
import { Call, lanesOf } from './call.js';
import type { Lane } from './call.js';
import type { TokenBucket } from './rate.js';
import { Restraint } from './restraint.js';
import { traceSend } from '../telemetry/tracing.js';
import type { Settler } from './settler.js';
import type { Share } from './slots.js';
import { UnderWay } from './under-way.js';
import { WaitingLine } from './waiting-line.js';

/** As long as a second's worth may take at a relay, and a little. */
const limitedForMs = 1500;

export type DispatcherOptions = {
  name: string;
  destination: Destination;
  settler: Settler;
  slots: Share;
  /** No call begins without a token for each of its messages. */
  rate: TokenBucket | undefined;
  breaker: Breaker | undefined;
  emit: Emit;
  onIdle: () => void;
};

export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #queue: WaitingLine<Call>;
  /** They wait until everything else has ended: also the lanes that go on meanwhile. */
  readonly #suspects = new WaitingLine<Call>();
  readonly #underWay = new UnderWay();
  /** Calls that have timed out and not returned. */
  #overdue = 0;
  readonly #restraint: Restraint;
  #pumping = false;
  #stopping = false;
  /** Set while the next call waits for tokens. */
  #tokenTimer: NodeJS.Timeout | undefined;
  /** When a call last had to wait for them. */
  #limitedMs = Number.NEGATIVE_INFINITY;
  readonly #watch: NodeJS.Timeout;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#queue = new WaitingLine(
      options.destination.settings.fairness === 'tenant'
        ? ({ messages }) => messages[0]?.tenantId ?? ''
        : undefined,
    );
    const { timeoutMs, concurrency } = options.destination.settings;
    this.#restraint = new Restraint(concurrency);
    this.#watch = setInterval(
      () => this.#checkTimeouts(),
      Math.min(Math.max(timeoutMs / 10, 5), 250),
    );
  }

  get queued(): number {
    return this.#queue.size + this.#suspects.size;
  }

  /** How long the next call has been waiting for its turn. */
  get waitedMs(): number {
    const call = this.#queue.first() ?? this.#suspects.first();
    return call === undefined ? 0 : performance.now() - call.claimedMs;
  }

  /** As many calls as are allowed have ignored their abort: nothing can be started. */
  get hung(): boolean {
    return this.#overdue >= this.#options.destination.settings.concurrency;
  }

  /** A call waits for tokens, or did lately: between two of them there may be one, and the next claim takes it. */
  get limited(): boolean {
    return performance.now() - this.#limitedMs < limitedForMs;
  }

  get idle(): boolean {
    return this.queued === 0 && this.#underWay.size === 0;
  }

  /** Another call could begin, and none waits for that. */
  get wantsCalls(): boolean {
    return this.queued === 0 && this.#underWay.size < this.#restraint.concurrency;
  }

  add(leaseId: string, messages: readonly ClaimedMessage[]): void {
    const { settler } = this.#options;
    settler.open(leaseId, messages);
    const present = messages.filter((message) => message.exists);
    for (const message of messages) {
      if (!message.exists) settler.end(leaseId, message, reject({ code: 'message_missing' }), null);
    }
    this.#enqueue(
      present.filter(({ streamId }) => streamId === null),
      (part) => new Call(leaseId, part),
    );
    this.#enqueueLanes(leaseId, lanesOf(present));
    if (this.#stopping || settler.isPausing || this.#options.breaker?.state === 'open')
      return this.releaseQueued();
    // not at once: the claimer asks for the next batch first, so that the database works while this one is sent
    setImmediate(this.#pumpLater);
  }

  /** In calls of as many as the destination takes at once. */
  #enqueue<T>(items: readonly T[], callOf: (part: readonly T[]) => Call): void {
    const { destination } = this.#options;
    const size = 'batchSize' in destination ? destination.batchSize : 1;
    for (let start = 0; start < items.length; start += size) {
      const call = callOf(items.slice(start, start + size));
      (call.messages[0]?.alone ? this.#suspects : this.#queue).push(call);
    }
  }

  /** The next message of each lane: a call never holds two of one key. */
  #enqueueLanes(leaseId: string, lanes: readonly Lane[]): void {
    this.#enqueue(lanes, (part) => {
      const messages = part.map((lane) => lane.messages[lane.next++] as ClaimedMessage);
      return new Call(leaseId, messages, part);
    });
  }

  /** Something changed that a waiting call may have waited for. */
  resume(): void {
    this.#pump();
  }

  /** Gives back what was not sent yet: all of it, or what belongs to one lease. */
  releaseQueued(leaseId?: string): void {
    const isMeant = (call: Call): boolean => leaseId === undefined || call.leaseId === leaseId;
    const waiting = [...this.#queue.remove(isMeant), ...this.#suspects.remove(isMeant)];
    for (const call of waiting)
      this.#settle(
        call,
        call.messages.map(() => release()),
        null,
      );
  }

  /** Starts no further call: what waits, and what is still added, goes back. */
  stop(): void {
    this.#stopping = true;
    this.releaseQueued();
  }

  /** The end of the patience at a stop: whatever has not answered counts as a failed try. */
  abortAll(): void {
    for (const call of this.#underWay.takeWhile(() => true))
      this.#giveUp(call, 'the relay is stopping', () =>
        retry({ code: 'stopped', message: 'the relay stopped before an answer came' }),
      );
  }

  close(): void {
    clearInterval(this.#watch);
    clearTimeout(this.#tokenTimer);
  }

  #pump(): void {
    // a destination that answers at once would make the calls nest as deep as the queue is long
    if (this.#pumping) return;
    this.#pumping = true;
    const { destination, slots } = this.#options;
    const { concurrency } = destination.settings;
    for (;;) {
      const line = this.#queue.size > 0 ? this.#queue : this.#suspects;
      const call = line.first();
      if (
        call === undefined ||
        !this.#isItsTurn(call) ||
        this.#underWay.size >= this.#restraint.concurrency ||
        this.#underWay.size + this.#overdue >= 2 * concurrency ||
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

  /** A suspect is sent when nothing else of this destination is at risk, and nothing is sent beside it. */
  #isItsTurn(call: Call): boolean {
    if (!call.messages[0]?.alone) return !this.#suspectUnderWay;
    return this.#underWay.size === 0 && this.#options.settler.held === call.messages.length;
  }

  get #suspectUnderWay(): boolean {
    return this.#underWay.first?.messages[0]?.alone ?? false;
  }

  readonly #pumpLater = (): void => this.#pump();

  #start(call: Call): void {
    const { rate, breaker } = this.#options;
    call.startedMs = performance.now();
    rate?.take(call.messages.length);
    call.ticket = breaker?.begin() ?? 0;
    this.#underWay.add(call);
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
    this.#underWay.remove(call);
    const latencyMs = performance.now() - call.startedMs;
    const { breaker, destination } = this.#options;
    const { classify } = destination.settings;
    const outcomes = call.messages.map((_message, index) => classified(outcomeOf(index), classify));
    this.#settle(call, outcomes, latencyMs);
    const failed = hasFailed(outcomes);
    this.#restraint.ended(failed);
    breaker?.end(call.ticket, failed);
    if (this.#options.settler.isPausing) this.releaseQueued();
    this.#options.slots.give();
    this.#pump();
    if (this.idle) this.#options.onIdle();
  }

  /** An answer of which only the rest is missing is an answer. */
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
      if (outcome.kind === 'delivered' && settler.holds(call.leaseId) && !this.#stopping)
        open.push(lane);
      else
        for (const follower of lane.messages.slice(lane.next))
          settler.end(call.leaseId, follower, release(), null);
    });
    if (open.length > 0) this.#enqueueLanes(call.leaseId, open);
  }

  /** What waits here may be another relay's luck. */
  #hang(): void {
    this.#options.emit({
      name: 'destination_hung',
      destination: this.#options.name,
      overdue: this.#overdue,
    });
    this.releaseQueued();
  }

  /** Calls are under way in the order of their start and share one timeout: the first that has time ends the look. */
  #checkTimeouts(): void {
    const { timeoutMs } = this.#options.destination.settings;
    const now = performance.now();
    const wasHung = this.hung;
    for (const call of this.#underWay.takeWhile(({ startedMs }) => now - startedMs >= timeoutMs)) {
      call.overdue = true;
      this.#overdue += 1;
      const message = `no answer within ${timeoutMs} ms`;
      this.#giveUp(call, message, () => retry({ code: 'timeout', message }));
    }
    // those that heed their abort have returned by then
    if (!wasHung && this.hung)
      setImmediate(() => {
        if (this.hung) this.#hang();
      });
  }
}
