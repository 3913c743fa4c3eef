// Destinations of a test: handlers are called as they are, all others record their messages instead of sending them.
// Each can be told to fail next. Guards, `classify` and timeouts work as in a relay.

import type { ClaimedMessage } from '../core/claimed-message.js';
import { shown } from '../core/errors.js';
import { delivered, isOutcome, retry, thrown } from '../core/outcome.js';
import type { Outcome } from '../core/outcome.js';
import { guarded } from '../destinations/guard.js';
import type { DeliveryContext, Destination } from '../destinations/destination.js';
import { TestKitError } from './errors.js';

/** A message that a destination would have sent. */
export type RecordedMessage = {
  destination: string;
  id: string;
  topic: string;
  namespace: string;
  tenantId: string | null;
  key: string | null;
  sequence: string | null;
  headers: Record<string, string>;
  payload: unknown;
  /** 1 the first time. */
  tries: number;
};

export class TestDestination {
  readonly name: string;
  readonly id: number;
  /** Whether the destination itself is called. */
  readonly isCalled: boolean;
  /** What the kit delivers to. */
  readonly destination: Destination;
  readonly recorded: RecordedMessage[] = [];
  readonly #original: Destination;
  #failures: (Outcome | Error)[] = [];
  /** Errors that the destination threw itself, by message: those of failNext are expected. */
  readonly thrown = new Map<string, unknown>();

  constructor(name: string, id: number, destination: Destination, isSent: boolean) {
    this.name = name;
    this.id = id;
    this.isCalled = isSent || destination.kind === 'handler';
    this.#original = destination;
    this.destination = guarded(this.#wrapped());
  }

  failNext(failure: Outcome | Error, times: number): void {
    // one by one: a call has no room for a million arguments
    for (let n = 0; n < times; n += 1) this.#failures.push(failure);
  }

  async open(): Promise<void> {
    if (this.isCalled) await this.#original.open?.();
  }

  async close(): Promise<void> {
    if (this.isCalled) await this.#original.close?.();
  }

  reset(): void {
    this.#failures = [];
    this.thrown.clear();
    this.recorded.length = 0;
  }

  #wrapped(): Destination {
    const { kind, settings } = this.#original;
    const original = this.#original;
    if (!('deliverBatch' in original))
      return {
        kind,
        settings,
        deliver: (message, context) => this.#deliverOne(message, context),
      };
    return {
      kind,
      settings,
      batchSize: original.batchSize,
      deliverBatch: (messages, context) => this.#deliverMany(messages, context),
    };
  }

  async #deliverOne(message: ClaimedMessage, context: DeliveryContext): Promise<Outcome> {
    const failure = this.#failures.shift();
    if (failure !== undefined) return failed(failure);
    if (!this.isCalled || 'deliverBatch' in this.#original) return this.#record(message);
    try {
      return await this.#original.deliver(message, context);
    } catch (error) {
      this.thrown.set(message.id, error);
      throw error;
    }
  }

  /** The first messages of a batch fail, if they are to fail; the others are delivered. */
  async #deliverMany(
    messages: readonly ClaimedMessage[],
    context: DeliveryContext,
  ): Promise<readonly Outcome[]> {
    const failures = this.#failures.splice(0, messages.length).map(failed);
    const others = messages.slice(failures.length);
    if (others.length === 0) return failures;
    if (!this.isCalled || !('deliverBatch' in this.#original))
      return [...failures, ...others.map((message) => this.#record(message))];
    try {
      const outcomes: unknown = await this.#original.deliverBatch(others, context);
      return Array.isArray(outcomes) ? [...failures, ...(outcomes as Outcome[])] : [];
    } catch (error) {
      for (const { id } of others) this.thrown.set(id, error);
      throw error;
    }
  }

  #record(message: ClaimedMessage): Outcome {
    const { id, topic, namespace, tenantId, key, sequence, headers, payload, tries } = message;
    this.recorded.push({
      destination: this.name,
      id,
      topic,
      namespace,
      tenantId,
      key,
      sequence,
      headers,
      payload,
      tries,
    });
    return delivered();
  }
}

/** The failure of failNext, if a test gives none. */
export const plainFailure: Outcome = retry({
  code: 'test_failure',
  message: 'failNext() made it fail',
});

export function checkFailure(failure: unknown): Outcome | Error {
  if (failure instanceof Error) return failure;
  if (isOutcome(failure) && failure.kind !== 'delivered') return failure;
  throw new TestKitError(
    `failNext got ${shown(failure)}: give an Error, which the destination then throws, or retry(), reject(), pause() or release()`,
  );
}

/** The outcome of an error is the one of a destination that threw it. */
function failed(failure: Outcome | Error): Outcome {
  return failure instanceof Error ? thrown(failure) : failure;
}
