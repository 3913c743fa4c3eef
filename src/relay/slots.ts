// The bound on deliveries under way over all destinations of one relay. Half of it is divided among the destinations,
// and nobody else can take a destination's own part: those that hang leave the others theirs. The rest is for
// whoever comes first. A dispatcher that finds no slot free is called again when one is given back, in the order in
// which they came.

export class Slots {
  readonly #limit: number;
  readonly #shares = new Set<Share>();
  readonly #waiting = new Set<() => void>();
  #held = 0;
  /** Of all destinations' own parts, what they do not use. */
  #unused = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** For one destination, until it leaves. */
  join(concurrency: number): Share {
    const share: Share = new Share(concurrency, {
      take: (whenFree) => this.#take(share, whenFree),
      give: () => this.#give(share),
      leave: () => this.#leave(share),
    });
    this.#shares.add(share);
    this.#divide();
    return share;
  }

  #take(share: Share, whenFree: () => void): boolean {
    const own = share.held < share.own;
    const free = this.#held < this.#limit && (own || this.#held + this.#unused < this.#limit);
    if (!free) {
      this.#waiting.add(whenFree);
      return false;
    }
    this.#held += 1;
    share.held += 1;
    if (own) this.#unused -= 1;
    return true;
  }

  #give(share: Share): void {
    this.#held -= 1;
    share.held -= 1;
    if (share.held < share.own) this.#unused += 1;
    // one that has nothing left to start does not take the slot: then it is the next one's turn
    const waiting = [...this.#waiting];
    // whoever gets none waits anew
    for (const whenFree of waiting) {
      if (this.#held === this.#limit) return;
      this.#waiting.delete(whenFree);
      whenFree();
    }
  }

  #leave(share: Share): void {
    if (!this.#shares.delete(share)) return;
    this.#held -= share.held;
    this.#divide();
  }

  #divide(): void {
    const part = Math.floor(this.#limit / 2 / Math.max(this.#shares.size, 1));
    this.#unused = 0;
    for (const share of this.#shares) {
      share.own = Math.min(share.concurrency, part);
      this.#unused += Math.max(share.own - share.held, 0);
    }
  }
}

type Actions = {
  take(whenFree: () => void): boolean;
  give(): void;
  leave(): void;
};

/** What one destination has of the slots. */
export class Share {
  readonly concurrency: number;
  /** How many nobody else can take. */
  own = 0;
  held = 0;
  readonly #actions: Actions;

  constructor(concurrency: number, actions: Actions) {
    this.concurrency = concurrency;
    this.#actions = actions;
  }

  /** Takes a slot, or remembers to call back when one is free. */
  take(whenFree: () => void): boolean {
    return this.#actions.take(whenFree);
  }

  give(): void {
    this.#actions.give();
  }

  leave(): void {
    this.#actions.leave();
  }
}
