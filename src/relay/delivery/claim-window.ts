// Claim window: how many messages a pipeline may hold. It doubles when the dispatcher runs dry and halves when messages
// wait long, so a fast handler gets large batches and a slow webhook holds no more than it can send soon.

export type ClaimWindowOptions = {
  /** Messages that the destination takes at once, over all its calls. */
  concurrency: number;
  /** Messages in one claim, at most. */
  batchSize: number;
  /** Each claim is shared fairly among tenants. */
  fair: boolean;
};

const windowBatches = 3;
const smallestWindow = 20;
/** With fairness, a new tenant waits for the next claim, so claims are small and frequent. Never smaller than this. */
const smallestShare = 25;

export class ClaimWindow {
  /** With this much room, the claimer claims at once instead of waiting for half of the window. */
  readonly largestStep: number;
  readonly #smallest: number;
  readonly #largest: number;
  #size: number;
  #isFirst = true;

  constructor({ concurrency, batchSize, fair }: ClaimWindowOptions) {
    this.largestStep = fair
      ? Math.min(Math.max(Math.ceil(concurrency / 4), smallestShare), batchSize)
      : batchSize;
    this.#largest = fair ? concurrency + 2 * this.largestStep : batchSize * windowBatches;
    this.#smallest = Math.min(Math.max(concurrency, smallestWindow), this.#largest);
    this.#size = this.#smallest;
  }

  get size(): number {
    return this.#size;
  }

  /** After each claim that found something. Before the first one, the dispatcher had nothing to run out of. */
  claimed(ranDry: boolean): void {
    if (ranDry && !this.#isFirst) this.#size = Math.min(this.#size * 2, this.#largest);
    this.#isFirst = false;
  }

  shrink(): void {
    this.#size = Math.max(Math.floor(this.#size / 2), this.#smallest);
  }
}
