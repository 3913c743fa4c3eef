// Stream sender: hands a page of the log to a destination or a handler, in order. A failing page is halved until the
// failing message is found; that one is retried by itself, with backoff. Messages before it are done; messages after
// it wait. When its tries are used up, it is parked with the dead letters and the rest continues. With `whenDead:
// 'block'` nothing continues until it succeeds.

import type { DeliveryContext, Destination } from '../../destinations/destination.js';
import { judgeAll } from '../../destinations/guard.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { classified } from '../../core/classify.js';
import type { Classify } from '../../core/classify.js';
import { safePositions } from '../../core/key-order.js';
import { retry, soundOutcome, thrown } from '../../core/outcome.js';
import type { Failure, Outcome } from '../../core/outcome.js';
import type { Emit } from '../../telemetry/events.js';
import { tracedSend } from '../../telemetry/tracing.js';
import { Call } from '../delivery/call.js';
import { noneDrained } from '../drains.js';
import type { Drained } from '../drains.js';
import type { TokenBucket } from '../delivery/rate-limiter.js';
import { Signal } from '../signal.js';
import { unreadable } from '../delivery/unreadable.js';

/** How many of the first messages are done and, if not all are, the outcome of the next one. */
export type StreamResult = {
  done: number;
  failure?: Outcome;
  /** The failure belongs to the next message, not to the batch as a whole. */
  exact?: boolean;
};

export type StreamDeliver = (
  messages: readonly ClaimedMessage[],
  context: DeliveryContext,
) => Promise<StreamResult>;

/** What the sender asks of the holder of the cursor. Each step throws when the lease is lost. */
export type CursorSteps = {
  moveTo(position: string | null): Promise<void>;
  /** Resolves when it is time for the next try. */
  waitAfter(message: ClaimedMessage, tries: number, failure: Failure): Promise<void>;
  /** Pauses the destination and throws. Resolves if the destination was resumed after the call began: then try again. */
  pause(message: ClaimedMessage, failure: Failure, beganMsAgo: number): Promise<void>;
  park(
    message: ClaimedMessage,
    tries: number,
    failure: Failure,
    rejected: boolean,
    position: string | null,
  ): Promise<void>;
};

export type CallsOf = (
  messages: readonly ClaimedMessage[],
) => readonly (readonly ClaimedMessage[])[];

export type StreamSenderOptions = {
  cursor: string;
  partition: number;
  deliver: StreamDeliver;
  /** Cuts a page into the calls that deliver it, in order. Default: one. */
  callsOf?: CallsOf;
  /** The timeout of each call. */
  timeoutMs: number;
  maxAttempts: number;
  whenExhausted: 'park' | 'block';
  classify?: Classify | undefined;
  rate?: TokenBucket | undefined;
  emit: Emit;
};

export class StreamSender {
  readonly #options: StreamSenderOptions;
  readonly #counts: Drained = { ...noneDrained };
  #calledMs = 0;

  constructor(options: StreamSenderOptions) {
    this.#options = options;
  }

  /** Messages that are done, and failed tries, by their outcome. */
  get counts(): Drained {
    return { ...this.#counts };
  }

  /**
   * Resolves when every message is done or parked; the caller then moves the cursor past them. A message over which
   * `maxAttempts` readers have died is parked without another try.
   */
  async send(
    messages: readonly ClaimedMessage[],
    steps: CursorSteps,
    stop: AbortSignal,
    deaths: number,
  ): Promise<void> {
    const { maxAttempts, whenExhausted } = this.#options;
    const [only] = messages;
    if (only && messages.length === 1 && deaths >= maxAttempts && whenExhausted === 'park') {
      const failure = { code: 'zombie', message: `${deaths} readers died over it` };
      this.#counts.reject += 1;
      return steps.park(only, deaths, failure, false, only.id);
    }
    const result = await this.#call(messages, stop);
    if (result.failure === undefined) return;
    const positions = safePositions(messages);
    await this.#narrow(messages, 0, result, positions, steps, stop);
  }

  /** Handles the failure of the messages from `start` on. */
  async #narrow(
    messages: readonly ClaimedMessage[],
    start: number,
    { done, failure, exact }: StreamResult,
    positions: readonly (string | null)[],
    steps: CursorSteps,
    stop: AbortSignal,
  ): Promise<void> {
    const attempt = async (part: readonly ClaimedMessage[], from: number): Promise<void> => {
      if (part.length === 0) return;
      const result = await this.#call(part, stop);
      if (result.failure !== undefined)
        await this.#narrow(part, from, result, positions, steps, stop);
      else await steps.moveTo(positions[from + part.length - 1] ?? null);
    };
    if (done > 0) await steps.moveTo(positions[start + done - 1] ?? null);
    const rest = messages.slice(done);
    const [first] = rest;
    if (first === undefined || failure === undefined) return;
    if (failure.kind === 'pause') {
      await this.#pause(first, failure, steps);
      return attempt(rest, start + done);
    }
    if (exact || rest.length === 1) {
      await this.#retryAlone(first, failure, positions[start + done] ?? null, steps, stop);
      await attempt(rest.slice(1), start + done + 1);
      return;
    }
    const half = Math.ceil(rest.length / 2);
    await attempt(rest.slice(0, half), start + done);
    await attempt(rest.slice(half), start + done + half);
  }

  /** Retries one failed message until it succeeds or is parked. */
  async #retryAlone(
    message: ClaimedMessage,
    first: Outcome,
    position: string | null,
    steps: CursorSteps,
    stop: AbortSignal,
  ): Promise<void> {
    const { maxAttempts, whenExhausted } = this.#options;
    let outcome: Outcome | undefined = first;
    for (let { tries } = message; outcome !== undefined;) {
      const failure = failureOf(outcome);
      if (outcome.kind === 'pause') {
        await this.#pause(message, outcome, steps);
        ({ failure: outcome } = await this.#call([message.again(tries)], stop));
        continue;
      }
      this.#failed(message, tries, outcome);
      const rejected = outcome.kind === 'reject';
      if (whenExhausted === 'park' && (rejected || tries >= maxAttempts)) {
        await steps.park(message, tries, failure, rejected, position);
        return;
      }
      // a message that was not sent costs no try
      const counted = outcome.kind === 'release' ? tries - 1 : tries;
      await steps.waitAfter(message, counted, failure);
      tries = counted + 1;
      ({ failure: outcome } = await this.#call([message.again(tries)], stop));
    }
    await steps.moveTo(position);
  }

  async #pause(message: ClaimedMessage, outcome: Outcome, steps: CursorSteps): Promise<void> {
    this.#failed(message, message.tries, outcome);
    await steps.pause(message, failureOf(outcome), performance.now() - this.#calledMs);
  }

  #failed(message: ClaimedMessage, tries: number, outcome: Outcome): void {
    const { cursor, partition, emit } = this.#options;
    this.#counts[outcome.kind] += 1;
    emit({ name: 'stream_failed', cursor, partition, messageId: message.id, tries, outcome });
  }

  async #waitForTokens(messages: number, stop: AbortSignal): Promise<void> {
    const { rate } = this.#options;
    if (rate === undefined) return;
    const stopped = new Signal();
    const raise = () => stopped.raise();
    stop.addEventListener('abort', raise);
    try {
      while (!rate.take(messages)) {
        stop.throwIfAborted();
        await stopped.wait(Math.ceil(rate.waitMs(messages)));
      }
    } finally {
      stop.removeEventListener('abort', raise);
    }
  }

  /** Makes the calls in order, up to the first that fails. */
  async #call(messages: readonly ClaimedMessage[], stop: AbortSignal): Promise<StreamResult> {
    let done = 0;
    for (const part of this.#options.callsOf?.(messages) ?? [messages]) {
      const result = await this.#callOnce(part, stop);
      this.#counts.delivered += result.done;
      if (result.failure !== undefined) return { ...result, done: done + result.done };
      done += part.length;
    }
    return { done };
  }

  async #callOnce(messages: readonly ClaimedMessage[], stop: AbortSignal): Promise<StreamResult> {
    const { deliver, timeoutMs, classify } = this.#options;
    await this.#waitForTokens(messages.length, stop);
    this.#calledMs = performance.now();
    const call = new Call('', messages);
    let timer: NodeJS.Timeout | undefined;
    let onStop: (() => void) | undefined;
    const noAnswer = new Promise<StreamResult>((resolve, reject) => {
      onStop = () => {
        call.abort(stop.reason as Error);
        reject(stop.reason as Error);
      };
      stop.addEventListener('abort', onStop);
      timer = setTimeout(() => {
        const message = `no answer within ${timeoutMs} ms`;
        const known = call.abort(new Error(message));
        if (known === undefined) resolve({ done: 0, failure: retry({ code: 'timeout', message }) });
        else resolve(firstFailure([soundOutcome(known)]));
      }, timeoutMs);
      if (stop.aborted) onStop();
    });
    try {
      // only a call with one message may report a known outcome on abort
      const context = messages.length === 1 ? call : { signal: call.signal };
      const answer = readableOnly(deliver)(messages, context).catch(nothingDone);
      const result = await Promise.race([answer, noAnswer]);
      if (result.failure === undefined) return result;
      return { ...result, failure: classified(result.failure, classify) };
    } finally {
      clearTimeout(timer);
      if (onStop) stop.removeEventListener('abort', onStop);
    }
  }
}

/** Sends only the messages before one that is too large to read; the messages after it follow once it is parked. */
function readableOnly(deliver: StreamDeliver): StreamDeliver {
  return async (messages, context) => {
    const done = messages.findIndex((message) => !message.readable);
    const failure = done < 0 ? undefined : unreadable(messages[done] as ClaimedMessage);
    if (failure === undefined) return deliver(messages, context);
    const result = done === 0 ? { done } : await deliver(messages.slice(0, done), context);
    return result.failure === undefined ? { done, failure, exact: true } : result;
  };
}

function nothingDone(error: unknown): StreamResult {
  return { done: 0, failure: thrown(error) };
}

function failureOf(outcome: Outcome): Failure {
  return 'code' in outcome ? outcome : { code: 'released' };
}

/** Cuts a page into calls, as large as possible while the order of every key holds, whatever fails. */
export function callsTo(destination: Destination): CallsOf {
  if (!('deliverBatch' in destination)) return (messages) => messages.map((message) => [message]);
  if (destination.keepsOrder) return (messages) => [messages];
  return runsOfDistinctKeys;
}

/** No call holds two messages of a key: the first might fail and the second succeed. */
function runsOfDistinctKeys(messages: readonly ClaimedMessage[]): ClaimedMessage[][] {
  const runs: ClaimedMessage[][] = [];
  const keys = new Set<string>();
  for (const message of messages) {
    const key = message.keyId;
    if (runs.length === 0 || (key !== null && keys.has(key))) {
      runs.push([]);
      keys.clear();
    }
    if (key !== null) keys.add(key);
    runs.at(-1)?.push(message);
  }
  return runs;
}

/** Makes the deliver function of a destination in stream mode. It expects the calls that `callsTo` makes. */
export function streamTo(name: string, destination: Destination): StreamDeliver {
  const deliver = deliverTo(name, destination);
  if (destination.settings.guard === undefined) return deliver;
  // in the log's order: nothing after a refused message is sent before it is parked or succeeds
  return async (messages, context) => {
    const judgements = await judgeAll(destination, messages);
    // the guard took time: another reader may have the lease by now
    context.signal.throwIfAborted();
    const done = judgements.findIndex((judgement) => judgement !== undefined);
    if (done < 0) return deliver(messages, context);
    const result = done === 0 ? { done } : await deliver(messages.slice(0, done), context);
    const failure = judgements[done];
    return result.failure === undefined && failure !== undefined
      ? { done, failure, exact: true }
      : result;
  };
}

function deliverTo(name: string, destination: Destination): StreamDeliver {
  const send = async (messages: readonly ClaimedMessage[], context: DeliveryContext) => {
    if ('deliverBatch' in destination) {
      const given = await destination.deliverBatch(messages, context);
      return messages.map((_message, index) => soundOutcome(given[index]));
    }
    return Promise.all(
      messages.map((message) => outcomeOf(async () => destination.deliver(message, context))),
    );
  };
  return async (messages, context) =>
    firstFailure(await tracedSend(name, messages, () => send(messages, context)));
}

async function outcomeOf(deliver: () => Promise<Outcome>): Promise<Outcome> {
  try {
    return soundOutcome(await deliver());
  } catch (error) {
    return thrown(error);
  }
}

function firstFailure(outcomes: readonly Outcome[]): StreamResult {
  const done = outcomes.findIndex(({ kind }) => kind !== 'delivered');
  const failure = outcomes[done];
  return failure === undefined ? { done: outcomes.length } : { done, failure, exact: true };
}
