// Claim gate: decides when a pipeline may claim, and how many messages. This is the back-pressure: what is held until
// its outcome is recorded takes room, in messages and bytes. The limits of the calls count too, because messages that
// cannot be sent soon are left for other relays. A drain has its own limit on top.

import { Signal } from '../signal.js';
import type { CallGate } from './call-gate.js';
import { ClaimWindow } from './claim-window.js';
import type { ClaimWindowOptions } from './claim-window.js';
import type { Dispatcher } from './dispatcher.js';
import type { DrainLimit } from './drain-limit.js';
import type { Settler } from './settler.js';

export type ClaimGateOptions = ClaimWindowOptions & {
  /** Bytes of payloads in one claim. */
  batchBytes: number;
  /** Messages that the destination takes in one call. */
  callSize: number;
  calls: CallGate;
  /** Only read: what is queued and in flight. */
  dispatcher: Readonly<Pick<Dispatcher, 'queued' | 'waitedMs' | 'idle' | 'isHung'>>;
  /** Only read: messages whose outcome is not recorded yet. */
  settler: Readonly<Pick<Settler, 'held' | 'heldBytes' | 'isPausing'>>;
  drain: DrainLimit | undefined;
};

const heldBatches = 3;
/** Messages that wait longer than this in the dispatcher should have stayed in the queue, for other relays to claim. */
export const longWaitMs = 1000;

export class ClaimGate {
  readonly #options: ClaimGateOptions;
  readonly #window: ClaimWindow;
  readonly #changed = new Signal();
  #stopping = false;

  constructor(options: ClaimGateOptions) {
    this.#options = options;
    this.#window = new ClaimWindow(options);
  }

  /** Outcomes were recorded, a call ended or the circuit breaker changed: there may be room. */
  changed(): void {
    this.#changed.raise();
  }

  /** Ends all waits. */
  stop(): void {
    this.#stopping = true;
    this.#changed.raise();
  }

  /** Waits until a claim is worth a round trip; returns how many messages it may take. 0: at a stop or a drain's end. */
  async room(): Promise<number> {
    const { dispatcher, batchSize, drain } = this.#options;
    if (dispatcher.waitedMs > longWaitMs) this.#window.shrink();
    await this.until(() => this.#room > 0 || drain?.isOver === true);
    return Math.min(batchSize, this.#room, drain?.left ?? Number.POSITIVE_INFINITY);
  }

  /** A claim asked for `limit` messages and found `count`, which are not yet in the dispatcher. */
  claimed(count: number, limit: number): void {
    const { dispatcher, drain } = this.#options;
    if (count === 0) return;
    // the dispatcher ran dry while a full batch was being claimed: hold more
    this.#window.claimed(count === limit && dispatcher.queued === 0);
    drain?.claimed(count);
  }

  /** Nothing is held or in flight. */
  get isEmpty(): boolean {
    const { settler, dispatcher } = this.#options;
    return settler.held === 0 && dispatcher.idle;
  }

  /** Waits until the condition is true, or the relay stops. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition() && !this.#stopping) await this.pause(1000);
  }

  /** Waits until something has changed, or for `ms`. */
  async pause(ms: number): Promise<void> {
    this.#changed.reset();
    await this.#changed.wait(ms);
  }

  /** Messages that may be claimed now; 0 if it is better to wait. */
  get #room(): number {
    const { batchBytes, callSize, calls, dispatcher, settler } = this.#options;
    if (dispatcher.isHung || settler.isPausing || calls.isResting) return 0;
    if (settler.heldBytes >= batchBytes * heldBatches) return 0;
    const window = Math.min(this.#window.size, calls.soon);
    const { probes } = calls;
    // probes wait until the queue is empty; calls that hang since before the breaker opened do not delay them
    if (probes !== undefined) return dispatcher.queued === 0 ? Math.min(probes, window) : 0;
    const free = window - settler.held;
    // a batch should be worth a round trip; but for a destination with batches, one call that could begin is enough
    const wanted = Math.min(this.#window.largestStep, Math.max(1, Math.floor(window / 2)));
    const isCallReady = callSize > 1 && dispatcher.queued === 0 && calls.hasFreeCall;
    return free >= (isCallReady ? Math.min(wanted, callSize) : wanted) ? free : 0;
  }
}
