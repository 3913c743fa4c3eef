// One request and its answer, as undici tells of them from within: a stream and a promise for each would cost twice
// as much, and the newer form of this interface, which undici 7 builds on top of this one, a tenth more. The
// beginning of the answer is kept if the rules want it; the rest is read and dropped, up to a bound, so that the
// connection lives on. Once the headers are whole, nothing that happens to the body changes what was answered.

import type { Dispatcher } from 'undici';

import type { Outcome } from '../../model/outcome.js';
import type { DeliveryContext } from '../destination.js';
import { AnswerInvalidError, failureOf, isKept, isSuccess, outcomeOf } from './answer.js';
import type { AnswerRules } from './answer.js';

const drainedBytes = 128 * 1024;
/** More than this before the answer is somebody who never comes to it. */
const mostInterimAnswers = 100;

export class Exchange implements Dispatcher.DispatchHandler {
  readonly #rules: AnswerRules;
  readonly #scheduledMs: () => number;
  readonly #resolve: (outcome: Outcome) => void;
  #abortRequest: ((reason: Error) => void) | undefined;
  #abortReason: Error | undefined;
  #stopListening: (() => void) | undefined;
  #interimAnswers = 0;
  /** Of the answer itself; 0 until its headers are whole. */
  #status = 0;
  #headers: readonly Buffer[] = [];
  #bytes = 0;
  #kept: Buffer[] | null = null;
  #outcome: Outcome | undefined;

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
    if (status < 200) return this.#takeInterim(status);
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
      this.#answered(false);
      this.#abortRequest?.(new Error('the answer is longer than anybody reads'));
    }
    return true;
  }

  onComplete(): void {
    this.#answered(false);
  }

  /** In the middle of the body too: the connection broke, the body is nonsense, or the time is over. */
  onError(error: Error): void {
    if (this.#status === 0) this.#end(failureOf(error));
    else this.#answered(true);
  }

  /** What a server says before its answer means nothing here; nobody asked for another protocol. */
  #takeInterim(status: number): boolean {
    this.#interimAnswers += 1;
    if (status < 100 || status === 101) {
      const shown = String(status).padStart(3, '0');
      this.#abortRequest?.(
        new AnswerInvalidError(
          'STATUS_INVALID',
          `the receiver answered ${shown}, which is no answer`,
        ),
      );
    } else if (this.#interimAnswers > mostInterimAnswers) {
      const message = `the receiver said ${status} and its like ${mostInterimAnswers} times, and no answer`;
      this.#abortRequest?.(new AnswerInvalidError('TOO_MANY_INTERIM_ANSWERS', message));
    }
    return true;
  }

  #answered(isCut: boolean): void {
    // the first ending counts: an answer that is too long is aborted after it
    if (this.#outcome !== undefined) return;
    const beginning = this.#kept === null ? null : Buffer.concat(this.#kept);
    const header = (name: string): string | undefined => headerOf(this.#headers, name);
    this.#end(outcomeOf(this.#rules, this.#status, header, beginning, isCut, this.#scheduledMs));
  }

  #end(outcome: Outcome): void {
    this.#outcome = outcome;
    this.#stopListening?.();
    this.#resolve(outcome);
  }

  /** A signal may outlive the exchange, and others may listen to it. */
  #listen(signal: AbortSignal): void {
    const abort = (): void => void this.#abort(signal.reason as Error);
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort);
    this.#stopListening = () => signal.removeEventListener('abort', abort);
  }

  /** Also before a connection was found for it. Answers what the receiver has said already, if it has. */
  #abort(reason: Error): Outcome | undefined {
    this.#abortReason = reason;
    this.#abortRequest?.(reason);
    return this.#status === 0 ? undefined : this.#outcome;
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
