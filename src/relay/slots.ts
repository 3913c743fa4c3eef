// The bound on deliveries under way over all destinations of one relay. A dispatcher that finds no slot
// free is called again when one is given back, in the order in which they came.

export class Slots {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(limit: number) {
    this.#free = limit;
  }

  /** Takes a slot, or remembers to call back when one is free. */
  take(whenFree: () => void): boolean {
    if (this.#free === 0) {
      this.#waiting.add(whenFree);
      return false;
    }
    this.#free -= 1;
    return true;
  }

  give(): void {
    this.#free += 1;
    // one that has nothing left to start does not take the slot: then it is the next one's turn
    for (const whenFree of this.#waiting) {
      if (this.#free === 0) return;
      this.#waiting.delete(whenFree);
      whenFree();
    }
  }
}
