// One call of a destination, with the lanes that continue when it has ended.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { isOutcome } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import { isThenable } from '../../core/thenable.js';
import type { SendTrace } from '../../telemetry/tracing.js';

/** The messages of one key in a lease, in order. */
export type Lane = { readonly messages: readonly ClaimedMessage[]; next: number };

type AbortListener = (reason: Error) => unknown;

/** Also the delivery's context. Its abort signal is made on first use, because most calls do not need one. */
export class Call {
  readonly leaseId: string;
  readonly messages: readonly ClaimedMessage[];
  /** One lane per message, if these have keys: the lane's next message follows this call. */
  readonly lanes: readonly Lane[] | undefined;
  readonly claimedMs = performance.now();
  startedMs = 0;
  /** The circuit breaker's epoch at the start of the call. */
  breakerEpoch = 0;
  ended = false;
  overdue = false;
  /** It has taken so long that it holds no slot of the relay any more. */
  isSlow = false;
  trace: SendTrace | undefined;
  /** Neighbours in the list of in-flight calls. */
  before: Call | undefined;
  after: Call | undefined;
  #controller: AbortController | undefined;
  #reason: Error | undefined;
  #listener: AbortListener | undefined;

  constructor(leaseId: string, messages: readonly ClaimedMessage[], lanes?: readonly Lane[]) {
    this.leaseId = leaseId;
    this.messages = messages;
    this.lanes = lanes;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#reason !== undefined) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  onAbort(listener: AbortListener): void {
    if (this.#reason === undefined) this.#listener = listener;
    else listener(this.#reason);
  }

  /** Aborts the call. Returns its outcome if the destination knows it already. */
  abort(reason: Error): Outcome | undefined {
    this.#reason = reason;
    const known = this.#tell(reason);
    this.#controller?.abort(reason);
    return isOutcome(known) ? known : undefined;
  }

  /** Ignores a failing listener: it must not keep other calls from their timeouts, nor end the process. */
  #tell(reason: Error): unknown {
    try {
      const known = this.#listener?.(reason);
      if (isThenable(known)) Promise.resolve(known).catch(() => undefined);
      return known;
    } catch {
      return undefined;
    }
  }
}

export function lanesOf(messages: readonly ClaimedMessage[]): Lane[] {
  const lanes = new Map<string, ClaimedMessage[]>();
  for (const message of messages) {
    if (message.keyId === null) continue;
    const lane = lanes.get(message.keyId);
    if (lane === undefined) lanes.set(message.keyId, [message]);
    else lane.push(message);
  }
  return [...lanes.values()].map((lane) => ({ messages: lane, next: 0 }));
}
