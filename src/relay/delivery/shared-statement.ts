// Shared statement: sends the requests of many pipelines in few statements, such as the claims of endpoints. The first
// request after a quiet time is sent at once. Later ones are collected for 5 ms, or while two statements run, and sent
// together up to a limit, so that a transaction stays short. So the connections in use do not depend on the number of
// pipelines.

import pg from 'pg';

import { isTransient } from '../../database/connection.js';

export type SharedStatementOptions<Request, Answer> = {
  /** Runs one statement. Returns an answer for each request, in their order. */
  run: (requests: readonly Request[]) => Promise<readonly Answer[]>;
  /** The messages of a request. */
  sizeOf: (request: Request) => number;
};

type Waiting<Request, Answer> = {
  request: Request;
  resolve: (answer: Answer) => void;
  reject: (error: unknown) => void;
};

/** Statements that run at once. */
const mostStatements = 2;
/** The shortest time between two statements with few requests. */
const restMs = 5;
const enough = 50;
/** Requests in one statement, and their messages together. */
const mostRequests = 100;
const mostMessages = 2000;

export class SharedStatement<Request, Answer> {
  readonly #options: SharedStatementOptions<Request, Answer>;
  #waiting: Waiting<Request, Answer>[] = [];
  #statements = 0;
  #sentMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #soon: NodeJS.Immediate | undefined;

  constructor(options: SharedStatementOptions<Request, Answer>) {
    this.#options = options;
  }

  ask(request: Request): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ request, resolve, reject });
      this.#sendSoon();
    });
  }

  #sendSoon(): void {
    if (this.#waiting.length === 0 || this.#statements >= mostStatements) return;
    const waitMs = this.#sentMs + restMs - performance.now();
    if (waitMs > 0 && this.#waiting.length < enough) {
      this.#timer ??= setTimeout(() => this.#send(), waitMs);
      return;
    }
    // at the end of this turn of the event loop, with the other requests of the turn
    this.#soon ??= setImmediate(() => this.#send());
  }

  #send(): void {
    clearTimeout(this.#timer);
    clearImmediate(this.#soon);
    this.#timer = undefined;
    this.#soon = undefined;
    if (this.#waiting.length === 0 || this.#statements >= mostStatements) return;
    this.#sentMs = performance.now();
    let [count, messages] = [0, 0];
    for (const { request } of this.#waiting) {
      messages += this.#options.sizeOf(request);
      if (count === mostRequests || (count > 0 && messages > mostMessages)) break;
      count += 1;
    }
    const together = this.#waiting.splice(0, count);
    this.#statements += 1;
    this.#sendSoon();
    void this.#run(together).finally(() => {
      this.#statements -= 1;
      this.#sendSoon();
    });
  }

  async #run(together: readonly Waiting<Request, Answer>[]): Promise<void> {
    try {
      const answers = await this.#options.run(together.map(({ request }) => request));
      together.forEach(({ resolve }, index) => resolve(answers[index] as Answer));
    } catch (error) {
      // A permanent error of the server: everything was rolled back, so each request is tried alone. Transient errors and
      // lost connections go to the callers.
      if (together.length > 1 && error instanceof pg.DatabaseError && !isTransient(error))
        for (const one of together) await this.#run([one]);
      else for (const { reject } of together) reject(error);
    }
  }
}
