// Calls a destination as the relay does: one call per message or per batch, each with a signal that is aborted at
// the timeout; a throw means retry.

import { randomUUID } from 'node:crypto';

import { onTestFinished } from 'vitest';

import type { Destination, Health } from '../../src/destinations/destination.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { retry, soundOutcome } from '../../src/core/outcome.js';
import type { Outcome } from '../../src/core/outcome.js';
import { claimedMessage } from '../support/claimed-message.js';
import { waitFor } from '../support/wait.js';

type Some<T> = [T, T, T, ...T[]];
type Fields = Parameters<typeof claimedMessage>[0];

export function fields(): Fields {
  return {
    id: randomUUID(),
    topic: 'contract.case',
    createdAt: '2026-01-02 03:04:05.678+00',
    payload: '{"is":"small"}',
  };
}

/** This many messages, each with its own id. */
export function messagesOf(
  count: number,
  more: (index: number) => Fields = () => ({}),
): Some<ClaimedMessage> {
  return Array.from({ length: count }, (_, index) =>
    claimedMessage({ ...fields(), ...more(index) }),
  ) as unknown as Some<ClaimedMessage>;
}

export class Sender {
  readonly #destination: Destination;
  #closed = false;

  static async open(destination: Destination): Promise<Sender> {
    const sender = new Sender(destination);
    onTestFinished(() => sender.close());
    await destination.open?.();
    return sender;
  }

  private constructor(destination: Destination) {
    this.#destination = destination;
  }

  async send(messages: readonly ClaimedMessage[], timeoutMs = 10_000): Promise<Outcome[]> {
    const destination = this.#destination;
    if (!('deliverBatch' in destination)) {
      const call = async (message: ClaimedMessage): Promise<Outcome> => {
        const outcome = await withTimeout(timeoutMs, async (signal) =>
          destination.deliver(message, { signal }),
        );
        return outcome instanceof Error ? thrown(outcome) : soundOutcome(outcome);
      };
      return Promise.all(messages.map(call));
    }
    const outcomes: Outcome[] = [];
    for (let start = 0; start < messages.length; start += destination.batchSize) {
      const part = messages.slice(start, start + destination.batchSize);
      const answer = await withTimeout(timeoutMs, async (signal) =>
        destination.deliverBatch(part, { signal }),
      );
      if (answer instanceof Error) outcomes.push(...part.map(() => thrown(answer)));
      else outcomes.push(...part.map((_, index) => soundOutcome(answer[index])));
    }
    return outcomes;
  }

  /** Sends failed messages again, as a relay would after a while. */
  async sendUntilDelivered(messages: readonly ClaimedMessage[]): Promise<void> {
    let waiting = messages;
    let outcomes: Outcome[] = [];
    await waitFor(
      async () => {
        const sent = waiting;
        outcomes = await this.send(sent, 2000);
        waiting = sent.filter((_, index) => outcomes[index]?.kind !== 'delivered');
        return waiting.length === 0;
      },
      { what: 'everything to be delivered in the end', timeoutMs: 30_000 },
    );
  }

  async health(): Promise<Health> {
    const answer = this.#destination.health?.({ signal: AbortSignal.timeout(5000) });
    if (answer === undefined) throw new Error('the destination cannot say how it is');
    return answer;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#destination.close?.();
  }
}

async function withTimeout<T>(
  timeoutMs: number,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T | Error> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new Error('no answer in time')), timeoutMs);
  try {
    return await call(controller.signal);
  } catch (error) {
    return error as Error;
  } finally {
    clearTimeout(timer);
  }
}

function thrown(error: Error): Outcome {
  return retry({ code: 'thrown', message: error.message });
}
