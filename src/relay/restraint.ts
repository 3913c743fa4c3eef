// How many calls may be under way at a destination, by how the last ones ended. While it takes nothing, whatever
// is sent to it is lost labour, and the processor, the slots and the database that it costs are taken from those
// that are well: so it gets a quarter, until it takes something again. A breaker does more, and has to be asked for.

/** So many failed calls in a row for each call that may be under way. */
const patience = 2;

export class Restraint {
  readonly #concurrency: number;
  #failedInARow = 0;

  constructor(concurrency: number) {
    this.#concurrency = concurrency;
  }

  get concurrency(): number {
    return this.#failedInARow < patience * this.#concurrency
      ? this.#concurrency
      : Math.ceil(this.#concurrency / 4);
  }

  /** By call: of a batch, that some go again says nothing while others are taken. Null: it was not asked. */
  ended(failed: boolean | null): void {
    if (failed) this.#failedInARow += 1;
    else if (failed === false) this.#failedInARow = 0;
  }
}
