// One request and its answer, as undici tells of them from within: a stream and a promise for each would cost twice
// as much, and the newer form of this interface, which undici 7 builds on top of this one, a tenth more. The
// beginning of the answer is kept if the rules want it; the rest is read and dropped, up to a bound, so that the
// connection lives on.

import type { Dispatcher } from 'undici';

import type { Outcome } from '../../model/outcome.js';
import type { DeliveryContext } from '../destination.js';
import { failureOf, isKept, isSuccess, outcomeOf } from './answer.js';
import type { AnswerRules } from './answer.js';

const drainedBytes = 128 * 1024;

export class Exchange implements Dispatcher.DispatchHandler {
  readonly #rules: AnswerRules;
  readonly #scheduledMs: () => number;
  readonly #resolve: (outcome: Outcome) => void;
  #abortRequest: ((reason: Error) => void) | undefined;
  #abortReason: Error | undefined;
  #stopListening: (() => void) | undefined;
  #status = 0;
  #headers: readonly Buffer[] = [];
  #bytes = 0;
  #kept: Buffer[] | null = null;

  constructor(
    rules: AnswerRules,
    scheduledMs: () => number,
    context: DeliveryContext,
    resolve: (outcome: Outcome) => void,
  ) {
    this.#rules = rules;
    this.#scheduledMs = scheduledMs;
    this.#resolve = resolve;
    if (context.onAbort !== undefined) context.onAbort((reason) => this.#abort(reason));
    else this.#listen(context.signal);
  }

  onConnect(abort: (reason?: Error) => void): void {
    this.#abortRequest = abort;
    if (this.#abortReason !== undefined) abort(this.#abortReason);
  }

  /** Also called for what a server says before its answer. */
  onHeaders(status: number, headers: Buffer[]): boolean {
    this.#status = status;
    this.#headers = headers;
    this.#kept = isKept(this.#rules, isSuccess(this.#rules, status)) ? [] : null;
    return true;
  }

  onData(chunk: Buffer): boolean {
    const { neededBytes } = this.#rules.keeper;
    if (this.#kept !== null && this.#bytes < neededBytes)
      this.#kept.push(chunk.subarray(0, neededBytes - this.#bytes));
    this.#bytes += chunk.length;
    if (this.#bytes > drainedBytes) {
      this.onComplete();
      this.#abortRequest?.(new Error('the answer is longer than anybody reads'));
    }
    return true;
  }

  onComplete(): void {
    const beginning = this.#kept === null ? null : Buffer.concat(this.#kept);
    const header = (name: string): string | undefined => headerOf(this.#headers, name);
    this.#end(outcomeOf(this.#rules, this.#status, header, beginning, this.#scheduledMs));
  }

  onError(error: Error): void {
    this.#end(failureOf(error));
  }

  /** The first ending counts; the promise ignores the others. */
  #end(outcome: Outcome): void {
    this.#stopListening?.();
    this.#resolve(outcome);
  }

  /** A signal may outlive the exchange, and others may listen to it. */
  #listen(signal: AbortSignal): void {
    const abort = (): void => this.#abort(signal.reason as Error);
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort);
    this.#stopListening = () => signal.removeEventListener('abort', abort);
  }

  /** Also before a connection was found for it. */
  #abort(reason: Error): void {
    this.#abortReason = reason;
    this.#abortRequest?.(reason);
  }
}

/** Names and values in turn, as they came; the first of a name counts. */
function headerOf(headers: readonly Buffer[], name: string): string | undefined {
  for (let index = 0; index + 1 < headers.length; index += 2) {
    if (headers[index]?.toString('latin1').toLowerCase() === name)
      return headers[index + 1]?.toString('latin1');
  }
  return undefined;
}
