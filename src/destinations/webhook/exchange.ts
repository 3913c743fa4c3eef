// One request and its answer, as undici tells of them: half the cost of a stream and a promise for each. The
// beginning of the answer is kept if the rules want it; the rest is read and dropped, up to a bound, so that the
// connection lives on.

import type { Dispatcher } from 'undici';

import type { Outcome } from '../../model/outcome.js';
import { failureOf, isKept, isSuccess, outcomeOf } from './answer.js';
import type { AnswerHeaders, AnswerRules } from './answer.js';

const drainedBytes = 128 * 1024;

export class Exchange implements Dispatcher.DispatchHandler {
  readonly #rules: AnswerRules;
  readonly #signal: AbortSignal;
  readonly #resolve: (outcome: Outcome) => void;
  #controller: Dispatcher.DispatchController | undefined;
  #status = 0;
  #headers: AnswerHeaders = {};
  #bytes = 0;
  #kept: Buffer[] | null = null;

  constructor(rules: AnswerRules, signal: AbortSignal, resolve: (outcome: Outcome) => void) {
    this.#rules = rules;
    this.#signal = signal;
    this.#resolve = resolve;
    signal.addEventListener('abort', this.#abort);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#signal.aborted) this.#abort();
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: AnswerHeaders,
  ): void {
    this.#status = status;
    this.#headers = headers;
    if (isKept(this.#rules, isSuccess(this.#rules, status))) this.#kept = [];
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    const { neededBytes } = this.#rules.keeper;
    if (this.#kept !== null && this.#bytes < neededBytes)
      this.#kept.push(chunk.subarray(0, neededBytes - this.#bytes));
    this.#bytes += chunk.length;
    if (this.#bytes > drainedBytes) {
      this.#answered();
      this.#controller?.abort(new Error('the answer is longer than anybody reads'));
    }
  }

  onResponseEnd(): void {
    this.#answered();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#end(failureOf(error));
  }

  #answered(): void {
    const beginning = this.#kept === null ? null : Buffer.concat(this.#kept);
    this.#end(outcomeOf(this.#rules, this.#status, this.#headers, beginning));
  }

  /** The first ending counts; the promise ignores the others. */
  #end(outcome: Outcome): void {
    this.#signal.removeEventListener('abort', this.#abort);
    this.#resolve(outcome);
  }

  readonly #abort = (): void => this.#controller?.abort(this.#signal.reason as Error);
}
