// Response cache: coalesces concurrent identical requests (browsers with the same screen, Prometheus) and reuses the
// answer for one second, so the load on the database does not grow with the number of clients. A change through this
// server clears the cache, so operators see their own changes.

import type { Source } from './route.js';

export class SharedAnswers {
  readonly #forMs: number;
  readonly #answers = new Map<string, { answer: Promise<unknown>; madeAtMs: number | null }>();

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** Returns the answer of this name that is in progress or still fresh; otherwise makes a new one. */
  async get<Answer>(name: string, make: () => Promise<Answer>): Promise<Answer> {
    const known = this.#answers.get(name);
    if (known !== undefined && this.#isFresh(known.madeAtMs))
      return known.answer as Promise<Answer>;
    const answer = make();
    const entry = { answer, madeAtMs: null as number | null };
    this.#answers.set(name, entry);
    try {
      await answer;
      entry.madeAtMs = performance.now();
    } catch {
      // errors are not cached
      if (this.#answers.get(name) === entry) this.#answers.delete(name);
    }
    return answer;
  }

  /** Clears the cache. */
  forget(): void {
    this.#answers.clear();
  }

  #isFresh(madeAtMs: number | null): boolean {
    return madeAtMs === null || performance.now() - madeAtMs < this.#forMs;
  }
}

/** Separate caches for the primary and the replica, because the replica may lag. */
export class ResponseCache {
  readonly #forMs: number;
  readonly #of = new Map<Source['from'], SharedAnswers>();

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  of(source: Source | null): SharedAnswers {
    const from = source?.from ?? 'primary';
    const known = this.#of.get(from);
    if (known !== undefined) return known;
    const shared = new SharedAnswers(this.#forMs);
    this.#of.set(from, shared);
    return shared;
  }

  forget(): void {
    for (const shared of this.#of.values()) shared.forget();
  }
}
