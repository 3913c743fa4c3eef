// Shared claims: sends the claims of many pipelines in few statements. The first claim after a quiet time is not delayed.
// Others wait for a moment, and while two statements run. The next statement takes all claims that have collected
// meanwhile, up to a limit, so that its transaction stays short. So the connections that claims use do not depend on the
// number of pipelines.

import pg from 'pg';

import { claimBatch, claimBatches } from '../../database/claims.js';
import type { ClaimRequest } from '../../database/claims.js';
import { isTransient } from '../../database/connection.js';
import type { Database } from '../../database/connection.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';

type Waiting = {
  request: ClaimRequest;
  resolve: (messages: ClaimedMessage[]) => void;
  reject: (error: unknown) => void;
};

/** Statements that run at once. */
const mostStatements = 2;
/** The shortest time between two statements with few claims. */
const restMs = 5;
const enough = 50;
/** Claims in one statement, and the messages that they may take together. */
const mostClaims = 100;
const mostMessages = 2000;

export class SharedClaims {
  readonly #database: Database;
  #waiting: Waiting[] = [];
  #statements = 0;
  #sentMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #soon: NodeJS.Immediate | undefined;

  constructor(database: Database) {
    this.#database = database;
  }

  claim(request: ClaimRequest): Promise<ClaimedMessage[]> {
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
    // at the end of this turn of the event loop, with the other claims of the turn
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
      messages += request.limit;
      if (count === mostClaims || (count > 0 && messages > mostMessages)) break;
      count += 1;
    }
    const claims = this.#waiting.splice(0, count);
    this.#statements += 1;
    this.#sendSoon();
    void this.#claim(claims).finally(() => {
      this.#statements -= 1;
      this.#sendSoon();
    });
  }

  async #claim(claims: readonly Waiting[]): Promise<void> {
    const [first] = claims;
    try {
      if (claims.length === 1 && first !== undefined)
        first.resolve(await claimBatch(this.#database, first.request));
      else {
        const requests = claims.map(({ request }) => request);
        const claimed = await claimBatches(this.#database, requests);
        claims.forEach(({ resolve }, index) => resolve(claimed[index] ?? []));
      }
    } catch (error) {
      // The server has rolled everything back: a destination that cannot be claimed must not fail the others. After any
      // other error, the leases may exist: each claimer has them released.
      if (claims.length > 1 && error instanceof pg.DatabaseError && !isTransient(error))
        for (const claim of claims) await this.#claim([claim]);
      else for (const { reject } of claims) reject(error);
    }
  }
}
