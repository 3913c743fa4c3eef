// Cursor holding: the state of a partition while one reader holds its lease (position, size of the next page, moves
// that are being written). If the last reader ended without releasing the lease, pages begin small and grow with
// each success. So a message that kills its reader is found in a few steps.

import type { Database } from '../../database/connection.js';
import { noteBatch, moveCursor } from '../../database/cursors.js';
import type { CursorLease, CursorPlace } from '../../database/cursors.js';
import type { PageSize, Window } from '../../database/windows.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { plannedPages } from './window-pages.js';

export type CursorHoldingOptions = {
  database: Database;
  reader: { leaseMs: number };
  batchSize: number;
  batchBytes: number;
};

/** The lease belongs to another reader, or was given up. */
export class LeaseEndedError extends Error {}

/** How often an idle reader stores its position. */
const idleMoveMs = 5000;
/** The number of parts into which a batch is cut after readers died over it. */
const narrowing = 8;

export class CursorHolding {
  readonly lease: CursorLease;
  place: CursorPlace;
  /** The destination is paused: the lease is given up after the current page, or before a retry. */
  paused = false;
  readonly #options: CursorHoldingOptions;
  readonly #ended = new AbortController();
  #moving: Promise<void> = Promise.resolve();
  #movedMs = performance.now();
  #unwritten = false;
  #afterCrash: boolean;
  /** Messages in the next page, after a crash. */
  #limit: number;
  /** The database has a note of the batch that the handler has. */
  #batchInFlight = false;
  #extendedMs = performance.now();
  #wasLate = false;
  /** The message that the last reader left behind as failed, until this reader has passed it. */
  #failed: Pick<CursorLease, 'failedMessageId' | 'tries'>;

  constructor(options: CursorHoldingOptions, lease: CursorLease) {
    this.#options = options;
    this.lease = lease;
    this.place = { seen: lease.seen, target: lease.target, position: lease.position };
    this.#afterCrash = lease.afterCrash;
    this.#failed = lease;
    this.#limit =
      lease.quarantinedUntil === null
        ? 1
        : Math.max(Math.floor(lease.quarantinedCount / narrowing), 1);
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  get afterCrash(): boolean {
    return this.#afterCrash;
  }

  /** This process was late to extend the lease, because something blocks it. */
  get wasLate(): boolean {
    return this.#wasLate;
  }

  extending(): void {
    if (performance.now() - this.#extendedMs > this.#options.reader.leaseMs) this.#wasLate = true;
  }

  extended(): void {
    this.#extendedMs = performance.now();
  }

  get pageSize(): PageSize {
    const { batchSize, batchBytes: maxBytes } = this.#options;
    // a message that failed before was found by itself, and is retried by itself
    if (this.#failed.failedMessageId !== null) return { limit: 1, maxBytes, pages: 1 };
    if (!this.#afterCrash) return { limit: batchSize, maxBytes, pages: plannedPages };
    return { limit: Math.min(this.#limit, batchSize), maxBytes, pages: 1 };
  }

  /** The messages as the handler gets them: the one that failed before goes on counting its tries. */
  withTries(messages: readonly ClaimedMessage[]): readonly ClaimedMessage[] {
    const { failedMessageId, tries } = this.#failed;
    if (failedMessageId === null) return messages;
    return messages.map((each) => (each.id === failedMessageId ? each.again(tries + 1) : each));
  }

  /** After a crash, records the batch before the handler gets it. Returns how many readers died over exactly this batch. */
  async noteBatch(messages: readonly ClaimedMessage[]): Promise<number> {
    if (!this.#afterCrash) return 0;
    const { database } = this.#options;
    const until = messages.reduce((highest, { id }) => (id > highest ? id : highest), '');
    await this.flush();
    this.#batchInFlight = true;
    const deaths = await noteBatch(database, this.lease, until, messages.length);
    if (deaths === null) throw this.end('the lease was lost');
    return deaths;
  }

  /** The batch over which a reader may have died is processed: pages have full size again. */
  endAfterCrash(): void {
    this.#afterCrash = false;
  }

  /**
   * After the quarantined batch, or after everything that was there when the reader died, pages have full size again.
   * If the quarantined batch is unknown, each page is twice as large as the one before.
   */
  pageProcessed(
    { position, finished }: { position: string; finished: boolean },
    window: Window,
  ): void {
    if (!this.#afterCrash) return;
    const { quarantinedUntil } = this.lease;
    if (quarantinedUntil === null) this.#limit *= 2;
    const isPast =
      quarantinedUntil === null
        ? this.#limit > this.#options.batchSize
        : position >= quarantinedUntil;
    if (isPast || (finished && window.isLast)) this.endAfterCrash();
  }

  /** Everything that this lease may read was read: the partition has other bounds from there on. */
  get isAtEnd(): boolean {
    return this.lease.until !== null && this.place.seen === this.lease.until;
  }

  /** Ends the lease: nothing more can be read or moved under it. */
  end(why: string): Error {
    const error = new LeaseEndedError(why);
    this.#ended.abort(error);
    return error;
  }

  check(): void {
    this.#ended.signal.throwIfAborted();
  }

  /** One move at a time: the next move waits for it, so it runs while the next page is processed. */
  async move(place: CursorPlace): Promise<void> {
    const { database } = this.#options;
    await this.flush();
    this.#goTo(place);
    this.#unwritten = false;
    this.#movedMs = performance.now();
    this.#moving = moveCursor(database, this.lease, place, !this.#afterCrash).then((moved) => {
      if (!moved) throw this.end('the lease was lost');
    });
    this.#moving.catch(() => {});
    // until the move is written, a death would count against the processed batch
    if (this.#batchInFlight) await this.#moving;
    this.#batchInFlight = false;
  }

  #goTo(place: CursorPlace): void {
    const { target, position } = place;
    const { failedMessageId } = this.#failed;
    // the failed message is in the window in which the last reader stopped, so the end of that window passes it too
    if (failedMessageId !== null && (target === null || (position ?? '') >= failedMessageId))
      this.#failed = { failedMessageId: null, tries: 0 };
    this.place = place;
  }

  async flush(): Promise<void> {
    await this.#moving;
  }

  /** Moves past an empty window; the position is stored only now and then. */
  async skipEmptyWindow({ target, isLast }: Window): Promise<void> {
    const place = { seen: target, target: null, position: null };
    this.#goTo(place);
    this.#unwritten = true;
    // nothing is left to read, so no batch is left over which a reader died
    const endsAfterCrash = this.#afterCrash && isLast;
    if (endsAfterCrash) this.endAfterCrash();
    if (endsAfterCrash || performance.now() - this.#movedMs > idleMoveMs) await this.move(place);
  }

  /** Writes all pending moves. */
  async finish(): Promise<void> {
    if (this.#unwritten) await this.move(this.place);
    await this.flush();
  }
}
