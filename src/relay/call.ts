// One call of a destination, and the lanes that go on when it has ended.

import type { ClaimedMessage } from '../model/claimed-message.js';
import { isOutcome } from '../model/outcome.js';
import type { Outcome } from '../model/outcome.js';
import { isThenable } from '../model/thenable.js';
import type { SendTrace } from '../telemetry/tracing.js';

/** What a lease holds of one key, in order. */
export type Lane = { readonly messages: readonly ClaimedMessage[]; next: number };

type AbortListener = (reason: Error) => unknown;

/** It is the delivery's context too: its signal is made when it is asked for. */
export class Call {
  readonly leaseId: string;
  readonly messages: readonly ClaimedMessage[];
  /** One per message, if these have keys: then the next messages of the lanes follow this call. */
  readonly lanes: readonly Lane[] | undefined;
  readonly claimedMs = performance.now();
  startedMs = 0;
  /** What the breaker gave it at its start. */
  ticket = 0;
  ended = false;
  overdue = false;
  trace: SendTrace | undefined;
  /** Its neighbours among those under way. */
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

  /** Answers how the call has ended, if the other side has said so already. */
  abort(reason: Error): Outcome | undefined {
    this.#reason = reason;
    const known = this.#tell(reason);
    this.#controller?.abort(reason);
    return isOutcome(known) ? known : undefined;
  }

  /** A listener that fails knows nothing; it must not keep the other calls from their timeouts, nor end the process. */
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
    if (message.streamId === null) continue;
    const lane = lanes.get(message.streamId);
    if (lane === undefined) lanes.set(message.streamId, [message]);
    else lane.push(message);
  }
  return [...lanes.values()].map((lane) => ({ messages: lane, next: 0 }));
}
