// Exchange: one request and its answer, as a handler of undici's dispatch. A stream and a promise per request would
// cost twice as much; undici 7's newer handler interface, built on top of this one, a tenth more. The beginning of the
// answer is stored if the rules want it. The rest is read and dropped, up to a limit, so that the connection can be
// reused. Once the headers are complete, errors in the body do not change the answer.

import type { Dispatcher } from 'undici';

import type { Outcome } from '../../core/outcome.js';
import type { DeliveryContext } from '../destination.js';
import { AnswerInvalidError, failureOf, isKept, isSuccess, outcomeOf } from './answer.js';
import type { AnswerRules } from './answer.js';

const drainedBytes = 128 * 1024;
/** A server that sends more interim answers than this never sends a final one. */
const mostInterimAnswers = 100;

export class Exchange implements Dispatcher.DispatchHandler {
  readonly #rules: AnswerRules;
  readonly #scheduledMs: () => number;
  readonly #resolve: (outcome: Outcome) => void;
  #abortRequest: ((reason: Error) => void) | undefined;
  #abortReason: Error | undefined;
  #stopListening: (() => void) | undefined;
  #interimAnswers = 0;
  /** The status of the final answer; 0 until its headers are complete. */
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

  /** Also called for interim answers (1xx). */
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
      this.#abortRequest?.(new Error('the answer is too long'));
    }
    return true;
  }

  onComplete(): void {
    this.#answered(false);
  }

  /** Also called in the middle of the body: the connection broke, the body is invalid, or the call timed out. */
  onError(error: Error): void {
    if (this.#status === 0) this.#end(failureOf(error));
    else this.#answered(true);
  }

  /** Interim answers are ignored; 101 is invalid, because the request asked for no other protocol. */
  #takeInterim(status: number): boolean {
    this.#interimAnswers += 1;
    if (status < 100 || status === 101) {
      const shown = String(status).padStart(3, '0');
      this.#abortRequest?.(
        new AnswerInvalidError(
          'STATUS_INVALID',
          `the receiver answered ${shown}, which is not a valid status`,
        ),
      );
    } else if (this.#interimAnswers > mostInterimAnswers) {
      const message = `the receiver sent more than ${mostInterimAnswers} interim answers (the last was ${status}), and no final one`;
      this.#abortRequest?.(new AnswerInvalidError('TOO_MANY_INTERIM_ANSWERS', message));
    }
    return true;
  }

  #answered(isCut: boolean): void {
    // the first result counts: an answer that is too long is aborted after its result is known
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

  /** A signal may outlive the exchange and have other listeners, so the listener is removed at the end. */
  #listen(signal: AbortSignal): void {
    const abort = (): void => void this.#abort(signal.reason as Error);
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort);
    this.#stopListening = () => signal.removeEventListener('abort', abort);
  }

  /** Also called before a connection was found. Returns the receiver's answer if its headers have arrived. */
  #abort(reason: Error): Outcome | undefined {
    this.#abortReason = reason;
    this.#abortRequest?.(reason);
    return this.#status === 0 ? undefined : this.#outcome;
  }
}

/** Names and values in turn, as received; the first value of a name counts. */
function headerOf(headers: readonly Buffer[], name: string): string | undefined {
  for (let index = 0; index + 1 < headers.length; index += 2) {
    if (headers[index]?.toString('latin1').toLowerCase() === name)
      return headers[index + 1]?.toString('latin1');
  }
  return undefined;
}
