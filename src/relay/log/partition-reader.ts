// Partition reader: reads one partition of a cursor under one lease, window by window and page by page. Each page is
// handed over before the cursor moves past it. While a page is processed, the next pages are read and the last move is
// written. The reader of a drain ends when it has caught up.

import {
  endPartition,
  extendCursor,
  noteFailure,
  parkMessage,
  pauseCursor,
  releaseCursor,
} from '../../database/cursors.js';
import type { CursorLease, CursorPlace, LeaseKey } from '../../database/cursors.js';
import type { Database } from '../../database/connection.js';
import { openWindow } from '../../database/windows.js';
import type { Window } from '../../database/windows.js';
import { inKeyOrder } from '../../core/key-order.js';
import type { Emit } from '../../telemetry/events.js';
import { CursorHolding, LeaseEndedError } from './cursor-holding.js';
import { Signal } from '../signal.js';
import type { CursorSteps, StreamSender } from './stream-sender.js';
import { Hold } from '../upkeep/hold.js';
import { pagesOf } from './window-pages.js';
import type { Page } from './window-pages.js';

export type PartitionReaderOptions = {
  database: Database;
  /** Separate connections, so leases are extended even while every connection for work is busy. */
  control: Database;
  reader: { leaseMs: number };
  batchSize: number;
  batchBytes: number;
  /** The longest pause between two reads of an idle log. */
  pollMs: number;
  emit: Emit;
};

/** How a drain ended. */
export type StreamDrained = {
  /** Everything was read, or waits behind a message that failed, or the destination is paused. */
  finished: boolean;
  /** The name of another reader, which holds the cursor. */
  heldBy: string | null;
  /** When the message that failed is due again; null if none waits. */
  retryInMs: number | null;
};

export const unfinished: StreamDrained = { finished: false, heldBy: null, retryInMs: null };

/** What the partitions of one process share. */
export type Siblings = {
  /** For a drain: how many messages it may still read. */
  readonly left: number | null;
  take(messages: number): void;
  /** The log has something new, for this partition or another one. */
  news(from: PartitionReader): void;
  /** The next look at the log, if this partition is the one that looks for all that are idle. */
  pauseMs(reader: PartitionReader, ms: number): number;
};

/** How the reading ended. */
export type PartitionEnd = {
  /** Set if a drain has nothing more to do here. */
  drained?: StreamDrained;
  /** The lease was lost although this process was never late to extend it. Such a loss must not count as a death. */
  lost?: LeaseKey;
};

const shortestPollMs = 5;

export class PartitionReader {
  readonly lease: CursorLease;
  readonly sender: StreamSender;
  readonly startedMs = performance.now();
  /** True while it waits for messages. */
  idle = false;
  readonly #options: PartitionReaderOptions;
  readonly #siblings: Siblings;
  readonly #holding: CursorHolding;
  readonly #wake = new Signal();
  #leaving = false;
  #drained: StreamDrained | undefined;

  constructor(
    options: PartitionReaderOptions,
    lease: CursorLease,
    sender: StreamSender,
    siblings: Siblings,
  ) {
    this.#options = options;
    this.lease = lease;
    this.sender = sender;
    this.#siblings = siblings;
    this.#holding = new CursorHolding(options, lease);
  }

  /** Lets the current page finish, then gives up the lease. */
  leave(): void {
    this.#leaving = true;
    this.#wake.raise();
  }

  /** Ends at once. */
  end(why: string): void {
    this.#holding.end(why);
  }

  wake(): void {
    this.#wake.raise();
  }

  /** Reads until it leaves, has read all of a drain, or has lost the lease. The lease is released then. */
  async run(): Promise<PartitionEnd> {
    const { control, reader, emit } = this.#options;
    const [holding, { lease }] = [this.#holding, this];
    const { cursor, partition } = lease;
    const hold = new Hold({
      what: 'extend cursor',
      heldMs: reader.leaseMs,
      renew: async () => {
        holding.extending();
        try {
          const { held, paused } = await extendCursor(control, lease);
          holding.paused = paused;
          return held;
        } finally {
          holding.extended();
        }
      },
      release: () =>
        holding.isAtEnd ? endPartition(control, lease) : releaseCursor(control, lease),
      onLost: () => holding.end('the lease was lost'),
      emit,
    });
    emit({ name: 'stream_taken', cursor, partition });
    let lost: LeaseKey | undefined;
    try {
      if (lease.retryInMs > 0) await this.#waitForRetry(lease.retryInMs);
      const caughtUp = await this.#read();
      await holding.finish();
      if (caughtUp) this.#drained = { ...unfinished, finished: true };
    } catch (error) {
      if (!(error instanceof LeaseEndedError)) throw error;
    } finally {
      // the next reader begins where the last move ends
      await holding.flush().catch(() => {});
      const released = await hold.release();
      if (!released && !holding.wasLate) lost = lease;
      if (!released && !this.#leaving) emit({ name: 'stream_lost', cursor, partition });
    }
    return {
      ...(this.#drained && { drained: this.#drained }),
      ...(lost && { lost }),
    };
  }

  get #isDrain(): boolean {
    return this.#siblings.left !== null;
  }

  /** Reads window by window. True if the reader of a drain has caught up. */
  async #read(): Promise<boolean> {
    const { database, pollMs } = this.#options;
    const [holding, { lease }] = [this.#holding, this];
    let pauseMs = 0;
    while (!this.#leaving && !holding.paused && !holding.isAtEnd) {
      holding.check();
      this.#wake.reset();
      const window = await openWindow(database, holding.place, lease, holding.pageSize, lease);
      if (!window.held) throw holding.end('the lease was lost');
      if (window.pages.length > 0) this.#siblings.news(this);
      const found = await this.#readPages(window);
      if (this.#leaving || this.#drained) return false;
      if (!found) await holding.skipEmptyWindow(window);
      if (this.#isDrain && window.isLast && !holding.paused) return true;
      if (found) pauseMs = 0;
      else if (window.isLast) {
        pauseMs = Math.min(Math.max(pauseMs * 2, shortestPollMs), pollMs);
        this.idle = true;
        await this.#wake.wait(this.#siblings.pauseMs(this, pauseMs));
        this.idle = false;
      }
    }
    return false;
  }

  /** Reads one window to its end, or until the reader stops. False if the whole window held nothing for this partition. */
  async #readPages(window: Window): Promise<boolean> {
    const { database, emit } = this.#options;
    const [holding, { lease, sender }] = [this.#holding, this];
    const { cursor, partition } = lease;
    const { seen, target } = window;
    let found = false;
    for await (const planned of pagesOf(database, window, lease, () => holding.pageSize)) {
      holding.check();
      if (this.#siblings.left === 0 && planned.messages.length > 0) return this.#endUnfinished();
      const page = this.#withinLimit(planned);
      const { position, finished } = page;
      if (page.messages.length > 0) {
        found = true;
        const startedMs = performance.now();
        const messages = holding.withTries(inKeyOrder(page.messages));
        const start = { seen, target, position: holding.place.position };
        const deaths = await holding.noteBatch(messages);
        await sender.send(messages, this.#stepsOf(start), holding.signal, deaths);
        emit({
          name: 'stream_read',
          cursor,
          partition,
          count: messages.length,
          ms: performance.now() - startedMs,
        });
      }
      const place = finished
        ? { seen: target, target: null, position: null }
        : { seen, target, position };
      if (page.messages.length > 0) holding.pageProcessed(page, window);
      if (found || !finished) await holding.move(place);
      // the unread rest of the window may hold messages
      if (this.#leaving || holding.paused) return found || !finished;
      if (page !== planned) return this.#endUnfinished();
    }
    return found;
  }

  /** A drain has reached its limit, and the window has more messages. */
  #endUnfinished(): true {
    this.#drained = unfinished;
    return true;
  }

  /** Cuts the last page of a drain that has a limit. */
  #withinLimit(page: Page): Page {
    const messages = page.messages.slice(0, this.#siblings.left ?? page.messages.length);
    this.#siblings.take(messages.length);
    const last = messages.length < page.messages.length ? messages.at(-1) : undefined;
    return last ? { messages, position: last.id, finished: false } : page;
  }

  /** Waits until the message that failed is due again. A drain ends instead: the next one goes on. */
  async #waitForRetry(ms: number): Promise<void> {
    const holding = this.#holding;
    if (this.#isDrain && ms > 0) {
      this.#drained = { ...unfinished, finished: true, retryInMs: ms };
      throw holding.end('a drain does not wait for a retry');
    }
    await this.#pause(ms);
    if (this.#leaving) throw holding.end('the reader is stopping');
    if (holding.paused) throw holding.end('the destination is paused');
    holding.check();
  }

  /** `start` is the place where the page begins. */
  #stepsOf(start: CursorPlace): CursorSteps {
    const { database, emit } = this.#options;
    const [holding, { lease }] = [this.#holding, this];
    const { cursor, partition } = lease;
    const at = (position: string | null) => ({ ...start, position: position ?? start.position });
    return {
      moveTo: async (position) => holding.move(at(position)),
      waitAfter: async (message, tries, failure) => {
        await holding.flush();
        const ms = await noteFailure(database, lease, message, tries, failure);
        if (ms === null) throw holding.end('the lease was lost');
        await this.#waitForRetry(ms);
        await holding.noteBatch([message]);
      },
      pause: async (message, failure, beganMsAgo) => {
        await holding.flush();
        const paused = await pauseCursor(database, lease, message, failure, beganMsAgo);
        if (paused === null) throw holding.end('the lease was lost');
        if (!paused) return void (await holding.noteBatch([message]));
        emit({ name: 'destination_paused', destination: cursor, failure });
        throw holding.end('the destination is paused');
      },
      park: async (message, tries, failure, rejected, position) => {
        await holding.flush();
        const reason = rejected ? 'rejected' : 'exhausted';
        const place = at(position);
        const parked = await parkMessage(database, lease, place, message, tries, reason, failure);
        if (!parked) throw holding.end('the lease was lost');
        holding.endAfterCrash();
        const { code } = failure;
        emit({ name: 'stream_parked', cursor, partition, messageId: message.id, tries, code });
      },
    };
  }

  /** Waits until the time has passed, or the reader has to leave. Other wake-ups do not end it. */
  async #pause(ms: number): Promise<void> {
    const untilMs = performance.now() + ms;
    this.#wake.reset();
    while (!this.#leaving && performance.now() < untilMs) {
      await this.#wake.wait(untilMs - performance.now());
      this.#wake.reset();
    }
  }
}
