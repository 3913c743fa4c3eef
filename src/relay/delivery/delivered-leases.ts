// Delivered leases: ends the leases of all pipelines of a relay that were delivered completely, many in one statement.
// Small leases are collected for a moment, and for a longer moment while two statements run, because a commit costs more
// than their rows. The first one after a quiet time is not delayed.

import { isTransient } from '../../database/connection.js';
import type { Database } from '../../database/connection.js';
import { deliverLeases } from '../../database/claims.js';
import type { DeliveredLease, Delivery } from '../../database/claims.js';

type Waiting = DeliveredLease & {
  resolve: (ended: boolean) => void;
  reject: (error: unknown) => void;
};

/** The shortest time between two statements for small leases. */
const restMs = 10;
/** With so many messages, a statement is worth its commit. */
const enough = 100;
/** With so many, it does not wait for the others either. */
const many = 1000;
/** While so many statements run, others wait, but not for ever: a statement may hang with its connection. */
const mostStatements = 2;
const longestMs = 100;

export class DeliveredLeases {
  readonly #database: Database;
  readonly #relayId: string;
  #waiting: Waiting[] = [];
  #messages = 0;
  #statements = 0;
  #sentMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(database: Database, relayId: string) {
    this.#database = database;
    this.#relayId = relayId;
  }

  /**
   * Ends a whole lease as delivered. False if the lease is lost or partly settled: then call settle. `isAwaited`: lanes
   * wait for it, so it is sent at once, with the leases that were collected so far.
   */
  async end(leaseId: string, deliveries: readonly Delivery[], isAwaited = false): Promise<boolean> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ leaseId, deliveries, resolve, reject });
      this.#messages += deliveries.length;
      if (isAwaited || this.#messages >= many) this.#send();
      else this.#sendSoon();
    });
  }

  #sendSoon(): void {
    if (this.#waiting.length === 0) return;
    const isBusy = this.#statements >= mostStatements;
    const waitMs = this.#sentMs + (isBusy ? longestMs : restMs) - performance.now();
    if (waitMs <= 0 || (this.#messages >= enough && !isBusy)) this.#send();
    else this.#timer ??= setTimeout(() => this.#send(), waitMs);
  }

  #send(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sentMs = performance.now();
    const leases = this.#waiting;
    this.#waiting = [];
    this.#messages = 0;
    this.#statements += 1;
    void this.#deliver(leases).finally(() => {
      this.#statements -= 1;
      this.#sendSoon();
    });
  }

  async #deliver(leases: readonly Waiting[]): Promise<void> {
    try {
      const ended = new Set(await deliverLeases(this.#database, this.#relayId, leases));
      for (const { leaseId, resolve } of leases) resolve(ended.has(leaseId));
    } catch (error) {
      // a lease that cannot be recorded must not fail the others
      if (leases.length > 1 && !isTransient(error))
        for (const lease of leases) await this.#deliver([lease]);
      else for (const { reject } of leases) reject(error);
    }
  }
}
