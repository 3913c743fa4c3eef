// Answers that many ask for at once: browsers that show the same screen, a Prometheus beside them. Whoever asks while an
// answer is being made waits for that one, and for a moment it is given to others too; so the database is asked about
// once a second, whoever looks on. A change through this server ends the moment: whoever made it sees it.

import type { Source } from './route.js';

export class Shared {
  readonly #forMs: number;
  readonly #answers = new Map<string, { answer: Promise<unknown>; madeAtMs: number | null }>();

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  /** The answer of this name that is being made, or was made a moment ago; otherwise a new one. */
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
      // whoever asks next tries again
      if (this.#answers.get(name) === entry) this.#answers.delete(name);
    }
    return answer;
  }

  /** What is asked from now on is looked up again. */
  forget(): void {
    this.#answers.clear();
  }

  #isFresh(madeAtMs: number | null): boolean {
    return madeAtMs === null || performance.now() - madeAtMs < this.#forMs;
  }
}

/** Of the primary and of the replica each its own: the replica may be behind. */
export class SharedAnswers {
  readonly #forMs: number;
  readonly #of = new Map<Source['from'], Shared>();

  constructor(forMs: number) {
    this.#forMs = forMs;
  }

  of(source: Source | null): Shared {
    const from = source?.from ?? 'primary';
    const known = this.#of.get(from);
    if (known !== undefined) return known;
    const shared = new Shared(this.#forMs);
    this.#of.set(from, shared);
    return shared;
  }

  forget(): void {
    for (const shared of this.#of.values()) shared.forget();
  }
}
