// Dispatcher: queues the messages of a claim as calls, starts each as soon as the call gate allows, and passes the
// outcomes to the settler. Messages without a key come first, then the first message of each lane; with fairness,
// tenants take turns. In a lane, the next message is queued after the one before it was delivered; after any other
// outcome the rest of the lane is released.

import type { Destination } from '../../destinations/destination.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { release } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import type { Emit } from '../../telemetry/events.js';
import { Call, lanesOf } from './call.js';
import type { Lane } from './call.js';
import type { CallGate } from './call-gate.js';
import { Caller } from './caller.js';
import { DispatchQueue } from './dispatch-queue.js';
import type { InFlightCalls } from './in-flight-calls.js';
import type { Settler } from './settler.js';
import { endUnreadable } from './unreadable.js';

export type DispatcherOptions = {
  name: string;
  destination: Destination;
  gate: CallGate;
  inFlight: InFlightCalls;
  settler: Settler;
  emit: Emit;
  /** Nothing is in flight any more, a call that hung has returned, or the dispatcher is closed. */
  onChange: () => void;
};

/** The most messages, and characters of payloads, that are sent in the same turn of the event loop as they came. */
const few = 10;
const shortLength = 100_000;

export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #caller: Caller;
  readonly #queue: DispatchQueue<Call>;
  #pumping = false;
  #stopping = false;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    const { name, destination, inFlight, onChange } = options;
    this.#queue = new DispatchQueue(
      destination.settings.fairness === 'tenant'
        ? ({ messages }) => messages[0]?.tenantId ?? ''
        : undefined,
    );
    this.#caller = new Caller({
      name,
      destination,
      inFlight,
      onEnded: (call, outcomes, latencyMs) => this.#ended(call, outcomes, latencyMs),
      onReturned: () => {
        this.#pump();
        onChange();
      },
      onSlow: (call) => {
        options.gate.slow(call);
        this.#pump();
      },
      onHung: () => this.#hung(),
    });
  }

  get queued(): number {
    return this.#queue.size;
  }

  /** How long the next call has been queued. */
  get waitedMs(): number {
    const call = this.#queue.first();
    return call === undefined ? 0 : performance.now() - call.claimedMs;
  }

  get idle(): boolean {
    return this.queued === 0 && this.#options.inFlight.size === 0;
  }

  get isHung(): boolean {
    return this.#caller.isHung;
  }

  /** While true, no call begins and queued messages are released, so that other relays can send them. */
  get isClosed(): boolean {
    const { settler, gate } = this.#options;
    return this.#stopping || settler.isPausing || gate.isClosed;
  }

  /** Sends the messages of a lease, which the settler has opened. */
  add(leaseId: string, messages: readonly ClaimedMessage[]): void {
    const sendable = endUnreadable(this.#options.settler, leaseId, messages);
    this.#enqueue(
      sendable.filter(({ keyId }) => keyId === null),
      (part) => new Call(leaseId, part),
    );
    this.#enqueueLanes(leaseId, lanesOf(sendable));
    if (this.isClosed) return this.releaseQueued();
    // later, so the claimer asks for the next batch first and the database works while this one is sent; a few small
    // messages are sent at once, because waiting for that would take longer than sending them
    if (isSmall(messages)) this.#pump();
    else setImmediate(this.#pumpLater);
  }

  /** Releases queued messages: all of them, or those of one lease. */
  releaseQueued(leaseId?: string): void {
    const isMeant = (call: Call): boolean => leaseId === undefined || call.leaseId === leaseId;
    for (const call of this.#queue.remove(isMeant))
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
    this.#caller.abortAll();
  }

  close(): void {
    this.#caller.close();
  }

  /** In calls of the destination's batch size. */
  #enqueue<T>(items: readonly T[], callOf: (part: readonly T[]) => Call): void {
    const { destination } = this.#options;
    const size = 'batchSize' in destination ? destination.batchSize : 1;
    for (let start = 0; start < items.length; start += size)
      this.#queue.push(callOf(items.slice(start, start + size)));
  }

  /** The next message of each lane: a call never holds two of one key. */
  #enqueueLanes(leaseId: string, lanes: readonly Lane[]): void {
    this.#enqueue(lanes, (part) => {
      const messages = part.map((lane) => lane.messages[lane.next++] as ClaimedMessage);
      return new Call(leaseId, messages, part);
    });
  }

  readonly #pumpLater = (): void => this.#pump();

  /** Starts calls until the queue is empty or the gate refuses the next one. */
  #pump(): void {
    // a destination that answers synchronously would nest calls as deep as the queue is long
    if (this.#pumping) return;
    this.#pumping = true;
    for (;;) {
      const call = this.#queue.first();
      if (call === undefined || this.isClosed) break;
      if (!this.#options.gate.enter(call, this.#pumpLater)) break;
      this.#queue.shift();
      this.#caller.start(call);
    }
    this.#pumping = false;
  }

  #ended(call: Call, outcomes: readonly Outcome[], latencyMs: number): void {
    const { gate, onChange } = this.#options;
    this.#settle(call, outcomes, latencyMs);
    gate.leave(call, outcomes);
    if (this.isClosed) this.releaseQueued();
    this.#pump();
    if (this.idle || this.isClosed) onChange();
  }

  /** Passes the outcomes of a call on, and continues its lanes. */
  #settle(call: Call, outcomes: readonly Outcome[], latencyMs: number | null): void {
    const { settler } = this.#options;
    const open: Lane[] = [];
    call.messages.forEach((message, index) => {
      const outcome = outcomes[index] as Outcome;
      call.trace?.end(index, outcome);
      settler.end(call.leaseId, message, outcome, latencyMs);
      const lane = call.lanes?.[index];
      if (lane === undefined || lane.next === lane.messages.length) return;
      if (outcome.kind === 'delivered' && settler.holds(call.leaseId) && !this.isClosed)
        open.push(lane);
      else
        for (const follower of lane.messages.slice(lane.next))
          settler.end(call.leaseId, follower, release(), null);
    });
    if (open.length > 0) this.#enqueueLanes(call.leaseId, open);
  }

  /** Releases the queue: another relay may have more success. */
  #hung(): void {
    const { name, inFlight, emit } = this.#options;
    emit({ name: 'destination_hung', destination: name, overdue: inFlight.overdue });
    this.releaseQueued();
  }
}

function isSmall(messages: readonly ClaimedMessage[]): boolean {
  if (messages.length > few) return false;
  return messages.reduce((sum, { payloadText }) => sum + payloadText.length, 0) <= shortLength;
}
