// Caller: calls the destination, with a timeout, and turns each answer into outcomes. A call that ignores its abort
// counts as overdue until it returns; as many overdue calls as the concurrency allows mean that the destination hangs.
// A call that has had no answer for half a second is reported as slow.

import type { Destination } from '../../destinations/destination.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { classified } from '../../core/classify.js';
import { outcomesMissing, retry, soundOutcome, thrown } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import { isThenable } from '../../core/thenable.js';
import { traceSend } from '../../telemetry/tracing.js';
import type { Call } from './call.js';
import type { InFlightCalls } from './in-flight-calls.js';

export type CallerOptions = {
  name: string;
  destination: Destination;
  inFlight: InFlightCalls;
  /** The outcomes of a call are known: it has answered, failed, timed out or was aborted. */
  onEnded: (call: Call, outcomes: readonly Outcome[], latencyMs: number) => void;
  /** A call whose outcomes were known already has returned. */
  onReturned: () => void;
  /** May be reported more than once. */
  onSlow: (call: Call) => void;
  onHung: () => void;
};

const slowMs = 500;

export class Caller {
  readonly #options: CallerOptions;
  readonly #watch: NodeJS.Timeout;

  constructor(options: CallerOptions) {
    this.#options = options;
    const { timeoutMs } = options.destination.settings;
    this.#watch = setInterval(
      () => this.#checkTimeouts(),
      Math.min(Math.max(timeoutMs / 10, 5), 250),
    );
  }

  /** As many calls as the concurrency allows have ignored their abort. */
  get isHung(): boolean {
    const { inFlight, destination } = this.#options;
    return inFlight.overdue >= destination.settings.concurrency;
  }

  start(call: Call): void {
    const { name, inFlight } = this.#options;
    call.startedMs = performance.now();
    inFlight.add(call);
    call.trace = traceSend(name, call.messages);
    try {
      const result = call.trace ? call.trace.run(() => this.#deliver(call)) : this.#deliver(call);
      if (isThenable(result)) {
        Promise.resolve(result).then(
          (answer) => this.#answered(call, answer),
          (error: unknown) => this.#failed(call, error),
        );
      } else {
        this.#answered(call, result);
      }
    } catch (error) {
      this.#failed(call, error);
    }
  }

  /** Ends the wait at a stop: calls that have not answered count as failed tries. */
  abortAll(): void {
    for (const call of this.#options.inFlight.takeWhile(() => true))
      this.#giveUp(call, 'the relay is stopping', () =>
        retry({ code: 'stopped', message: 'the relay stopped before an answer came' }),
      );
  }

  close(): void {
    clearInterval(this.#watch);
  }

  #deliver(call: Call): Promise<Outcome | readonly Outcome[]> | Outcome {
    const { destination } = this.#options;
    if ('deliverBatch' in destination) return destination.deliverBatch(call.messages, call);
    return destination.deliver(call.messages[0] as ClaimedMessage, call);
  }

  #answered(call: Call, answer: unknown): void {
    if (!('deliverBatch' in this.#options.destination))
      return this.#finish(call, () => soundOutcome(answer));
    const count = Array.isArray(answer) ? answer.length : 0;
    if (!Array.isArray(answer) || count !== call.messages.length)
      return this.#finish(call, () => outcomesMissing(count, call.messages.length));
    this.#finish(call, (index) => soundOutcome(answer[index]));
  }

  #failed(call: Call, error: unknown): void {
    this.#finish(call, () => thrown(error));
  }

  #finish(call: Call, outcomeOf: (index: number) => Outcome): void {
    const { destination, inFlight, onEnded, onReturned } = this.#options;
    if (call.ended) {
      if (call.overdue) inFlight.overdue -= 1;
      return onReturned();
    }
    call.ended = true;
    inFlight.remove(call);
    const latencyMs = performance.now() - call.startedMs;
    const { classify } = destination.settings;
    const outcomes = call.messages.map((_message, index) => classified(outcomeOf(index), classify));
    onEnded(call, outcomes, latencyMs);
  }

  /**
   * If the destination already knows the outcome (for example, only the response body is missing), that outcome
   * counts.
   */
  #giveUp(call: Call, reason: string, unanswered: () => Outcome): void {
    const known = call.abort(new Error(reason));
    this.#finish(call, known === undefined ? unanswered : () => soundOutcome(known));
  }

  /**
   * In-flight calls are in the order of their start and share one timeout, so the check ends at the first one in
   * time.
   */
  #checkTimeouts(): void {
    const { destination, inFlight, onSlow, onHung } = this.#options;
    const { timeoutMs } = destination.settings;
    const now = performance.now();
    const wasHung = this.isHung;
    for (const call of inFlight.takeWhile(({ startedMs }) => now - startedMs >= timeoutMs)) {
      call.overdue = true;
      inFlight.overdue += 1;
      const message = `no answer within ${timeoutMs} ms`;
      this.#giveUp(call, message, () => retry({ code: 'timeout', message }));
    }
    for (const call of inFlight.takeWhile(({ startedMs }) => now - startedMs >= slowMs))
      onSlow(call);
    // calls that heed their abort have returned by then
    if (!wasHung && this.isHung)
      setImmediate(() => {
        if (this.isHung) onHung();
      });
  }
}
