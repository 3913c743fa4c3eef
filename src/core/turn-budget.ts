// Turn budget: spreads synchronous work, such as the checks of a batch, over several turns of the event loop, so that
// many small pieces do not block it together.

import { setImmediate as nextTurn } from 'node:timers/promises';

export class TurnBudget {
  readonly #budgetMs: number;
  #usedMs = 0;
  #endsWithTurn = false;

  constructor(budgetMs: number) {
    this.#budgetMs = budgetMs;
  }

  /** Whether the next piece must wait for another turn. */
  get isUsedUp(): boolean {
    return this.#usedMs >= this.#budgetMs;
  }

  /** Waits for a turn with some budget left. */
  async wait(): Promise<void> {
    while (this.isUsedUp) await nextTurn();
  }

  /** Does a piece of work, and counts its time. */
  spend<T>(work: () => T): T {
    const startedMs = performance.now();
    try {
      return work();
    } finally {
      this.#usedMs += performance.now() - startedMs;
      if (!this.#endsWithTurn) {
        this.#endsWithTurn = true;
        setImmediate(() => {
          this.#usedMs = 0;
          this.#endsWithTurn = false;
        });
      }
    }
  }
}
