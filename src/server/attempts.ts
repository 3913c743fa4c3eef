// Wrong secrets by address: after some in a minute no more are looked at. A try counts from before the database is
// asked until it is known to be right, so that many at once get no further than one after the other. Those for which
// there is no room yet wait instead of being refused: the tries before them may all be right.

import { HttpProblem } from './route.js';

type Options = { most?: number; windowMs?: number; now?: () => number };

export class Attempts {
  readonly #wrong = new Map<string, { count: number; untilMs: number }>();
  readonly #looks = new Map<string, { underWay: number; waiting: (() => void)[] }>();
  readonly #most: number;
  readonly #windowMs: number;
  readonly #now: () => number;

  constructor({ most = 20, windowMs = 60_000, now = () => performance.now() }: Options = {}) {
    this.#most = most;
    this.#windowMs = windowMs;
    this.#now = now;
  }

  /** Gives what `look` finds; null is a wrong secret, and counts. */
  async look<T>(from: string, look: () => Promise<T | null>): Promise<T | null> {
    await this.#begin(from);
    let isWrong = false;
    try {
      const found = await look();
      isWrong = found === null;
      return found;
    } finally {
      // what could not be looked up was no wrong one
      this.#end(from, isWrong);
    }
  }

  async #begin(from: string): Promise<void> {
    for (;;) {
      const wrong = this.#wrongFrom(from);
      if (wrong >= this.#most)
        throw new HttpProblem(429, 'too many wrong tokens from this address: wait a minute');
      const looks = this.#looks.get(from) ?? { underWay: 0, waiting: [] };
      this.#looks.set(from, looks);
      if (wrong + looks.underWay < this.#most) {
        looks.underWay += 1;
        return;
      }
      await new Promise<void>((resolve) => looks.waiting.push(resolve));
    }
  }

  #end(from: string, isWrong: boolean): void {
    if (isWrong) this.#count(from);
    const looks = this.#looks.get(from);
    if (looks === undefined) return;
    looks.underWay -= 1;
    const isOver = looks.underWay === 0 || this.#wrongFrom(from) >= this.#most;
    // the place of a wrong one is not free
    const awoken = isOver ? looks.waiting.length : isWrong ? 0 : 1;
    for (const resume of looks.waiting.splice(0, awoken)) resume();
    if (looks.underWay === 0) this.#looks.delete(from);
  }

  #wrongFrom(from: string): number {
    const wrong = this.#wrong.get(from);
    return wrong !== undefined && wrong.untilMs > this.#now() ? wrong.count : 0;
  }

  #count(from: string): void {
    const wrong = this.#wrong.get(from);
    const nowMs = this.#now();
    if (wrong !== undefined && wrong.untilMs > nowMs) {
      wrong.count += 1;
      return;
    }
    // whoever has many addresses cannot fill the memory either
    if (this.#wrong.size > 10_000) this.#wrong.clear();
    this.#wrong.set(from, { count: 1, untilMs: nowMs + this.#windowMs });
  }
}
