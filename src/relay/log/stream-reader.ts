// Stream reader: reads the log for one cursor, window by window and page by page. Each page is handed over before
// the cursor moves past it. Any number of readers may have one name; the holder of the lease reads, the others stand
// by. While a page is processed, the next pages are read and the last move is written. The reader of a drain ends when
// it has caught up.

import {
  cursorWaits,
  extendCursor,
  noteFailure,
  parkMessage,
  pauseCursor,
  releaseCursor,
  takeCursor,
  withdrawDeath,
} from '../../database/cursors.js';
import type { CursorLease, CursorPlace, CursorWaits } from '../../database/cursors.js';
import type { Database } from '../../database/connection.js';
import { openWindow } from '../../database/windows.js';
import type { Window } from '../../database/windows.js';
import { inKeyOrder } from '../../core/key-order.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import { CursorHolding, LeaseEndedError } from './cursor-holding.js';
import { Signal } from '../signal.js';
import type { CursorSteps, StreamSender } from './stream-sender.js';
import { Hold } from '../upkeep/hold.js';
import { pagesOf } from './window-pages.js';
import type { Page } from './window-pages.js';
import type { Drained } from '../drains.js';
import { within } from '../within.js';

export type StreamReaderOptions = {
  cursor: string;
  database: Database;
  /** Separate connections, so leases are extended even while every connection for work is busy. */
  control: Database;
  reader: { id: string; name: string; leaseMs: number };
  batchSize: number;
  batchBytes: number;
  /** The longest pause between two reads of an idle log. */
  pollMs: number;
  sender: StreamSender;
  emit: Emit;
  /** For a drain: it ends when it has read what was committed at its start, or so many messages. */
  drain?: { maxMessages: number } | null;
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

type Taken = { lease: CursorLease; waits: CursorWaits };

const shortestPollMs = 5;
const maxBackoffMs = 5000;
/** How often a reader that stands by asks for the lease. */
const standByMs = 1000;
/** How often a drain asks for a lease that no reader holds: another one may have released it just now. */
const drainAsks = 3;
const unfinished: StreamDrained = { finished: false, heldBy: null, retryInMs: null };

export class StreamReader {
  readonly #options: StreamReaderOptions;
  readonly #wake = new Signal();
  #stopping = false;
  #running: Promise<void> = Promise.resolve();
  #holding: CursorHolding | undefined;
  /** The fence of a lost lease that this process was never late to extend. Such a loss must not count as a death. */
  #lostFence: string | undefined;
  /** Set when a drain has nothing more to do. */
  #drained: StreamDrained | undefined;
  /** Messages that a drain may still read. */
  #left: number;

  constructor(options: StreamReaderOptions) {
    this.#options = options;
    this.#left = options.drain?.maxMessages ?? Number.POSITIVE_INFINITY;
  }

  get cursor(): string {
    return this.#options.cursor;
  }

  get reading(): boolean {
    return this.#holding !== undefined;
  }

  /**
   * Takes the lease if it is free. Throws permanent errors: the server is a standby, or the ids come from another
   * server.
   */
  async start(): Promise<void> {
    const taking = this.#take();
    this.#running = taking.then(
      async (taken) => this.#run(taken),
      () => undefined,
    );
    await taking;
  }

  /** Resolves at the end of a drain, or at a stop, when the lease is released. */
  async ended(): Promise<void> {
    await this.#running;
  }

  get drained(): StreamDrained {
    return this.#drained ?? unfinished;
  }

  /** Messages that are done, and failed tries, by their outcome. */
  get counts(): Drained {
    return this.#options.sender.counts;
  }

  /** Lets the current page finish until the deadline (on the clock of performance.now()), then gives up the lease. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopping = true;
    this.#wake.raise();
    await within(deadlineMs, this.#running);
    this.#holding?.end('the reader is stopping');
    await within(Math.max(deadlineMs, performance.now() + 1000), this.#running);
  }

  async #take(): Promise<Taken | null> {
    const { control, cursor, reader } = this.#options;
    const lease = await takeCursor(control, cursor, reader);
    // another reader may have counted this one as dead
    if (lease === null && this.#lostFence !== undefined)
      await withdrawDeath(control, cursor, this.#lostFence);
    this.#lostFence = undefined;
    return lease && { lease, waits: await cursorWaits(control, cursor) };
  }

  async #run(first: Taken | null): Promise<void> {
    const { cursor, drain, emit } = this.#options;
    let taken = first;
    let backoffMs = 0;
    let asked = 1;
    // a lease that was taken during a stop goes through #hold once more, which releases it
    while (!this.#stopping || taken !== null) {
      try {
        if (taken !== null) await this.#hold(taken);
        else if (drain) await this.#missed(asked++);
        else await this.#pause(standByMs);
        if (this.#drained) return;
        backoffMs = 0;
        taken = this.#stopping ? null : await this.#take();
      } catch (error) {
        taken = null;
        this.#drained = undefined;
        emit(troubleOf(`read ${cursor}`, error));
        backoffMs = Math.min(Math.max(backoffMs * 2, 50), maxBackoffMs);
        await this.#pause(backoffMs);
      }
    }
  }

  /** A drain did not get the lease. Nothing is due if no reader holds it: the destination is paused. */
  async #missed(asked: number): Promise<void> {
    const { heldBy } = await cursorWaits(this.#options.control, this.#options.cursor);
    if (heldBy !== null) this.#drained = { ...unfinished, heldBy };
    else if (asked >= drainAsks) this.#drained = { ...unfinished, finished: true };
  }

  async #hold({ lease, waits }: Taken): Promise<void> {
    const { cursor, control, reader, emit } = this.#options;
    const holding = new CursorHolding(this.#options, lease, waits);
    const hold = new Hold({
      what: 'extend cursor',
      heldMs: reader.leaseMs,
      renew: async () => {
        holding.extending();
        try {
          const { held, paused } = await extendCursor(control, cursor, lease.fence);
          holding.paused = paused;
          return held;
        } finally {
          holding.extended();
        }
      },
      release: () => releaseCursor(control, cursor, lease.fence),
      onLost: () => holding.end('the lease was lost'),
      emit,
    });
    this.#holding = holding;
    emit({ name: 'stream_taken', cursor });
    try {
      if (waits.retryInMs > 0) await this.#waitForRetry(holding, waits.retryInMs);
      const caughtUp = await this.#read(holding);
      await holding.finish();
      if (caughtUp) this.#drained = { ...unfinished, finished: true };
    } catch (error) {
      if (!(error instanceof LeaseEndedError)) throw error;
    } finally {
      this.#holding = undefined;
      // the next reader begins where the last move ends
      await holding.flush().catch(() => {});
      const released = await hold.release();
      if (!released && !holding.wasLate) this.#lostFence = lease.fence;
      if (!released && !this.#stopping) emit({ name: 'stream_lost', cursor });
    }
  }

  /** Reads window by window. True if the reader of a drain has caught up. */
  async #read(holding: CursorHolding): Promise<boolean> {
    const { cursor, database, pollMs, drain } = this.#options;
    const { filters, fence } = holding.lease;
    let pauseMs = 0;
    while (!this.#stopping && !holding.paused) {
      holding.check();
      this.#wake.reset();
      const window = await openWindow(database, holding.place, filters, holding.pageSize, {
        cursor,
        fence,
      });
      if (!window.held) throw holding.end('the lease was lost');
      const found = await this.#readPages(holding, window);
      if (this.#stopping || this.#drained) return false;
      if (!found) await holding.skipEmptyWindow(window);
      if (drain && window.isLast && !holding.paused) return true;
      if (found) pauseMs = 0;
      else if (window.isLast) {
        pauseMs = Math.min(Math.max(pauseMs * 2, shortestPollMs), pollMs);
        await this.#wake.wait(pauseMs);
      }
    }
    return false;
  }

  /** Reads one window to its end, or until the reader stops. False if the whole window held nothing for this cursor. */
  async #readPages(holding: CursorHolding, window: Window): Promise<boolean> {
    const { database, sender, cursor, emit } = this.#options;
    const { filters } = holding.lease;
    const { seen, target } = window;
    let found = false;
    for await (const planned of pagesOf(database, window, filters, () => holding.pageSize)) {
      holding.check();
      if (this.#left === 0 && planned.messages.length > 0) return this.#endUnfinished();
      const page = this.#withinLimit(planned);
      const { position, finished } = page;
      if (page.messages.length > 0) {
        found = true;
        const startedMs = performance.now();
        const messages = holding.withTries(inKeyOrder(page.messages));
        const start = { seen, target, position: holding.place.position };
        const steps = this.#stepsOf(holding, start);
        const deaths = await holding.noteBatch(messages);
        await sender.send(messages, steps, holding.signal, deaths);
        emit({
          name: 'stream_read',
          cursor,
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
      if (this.#stopping || holding.paused) return found || !finished;
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
    const messages = page.messages.slice(0, this.#left);
    this.#left -= messages.length;
    const last = messages.length < page.messages.length ? messages.at(-1) : undefined;
    return last ? { messages, position: last.id, finished: false } : page;
  }

  /** Waits until the message that failed is due again. A drain ends instead: the next one goes on. */
  async #waitForRetry(holding: CursorHolding, ms: number): Promise<void> {
    if (this.#options.drain && ms > 0) {
      this.#drained = { ...unfinished, finished: true, retryInMs: ms };
      throw holding.end('a drain does not wait for a retry');
    }
    await this.#pause(ms);
    if (this.#stopping) throw holding.end('the reader is stopping');
    if (holding.paused) throw holding.end('the destination is paused');
    holding.check();
  }

  /** `start` is the place where the page begins. */
  #stepsOf(holding: CursorHolding, start: CursorPlace): CursorSteps {
    const { database, cursor, emit } = this.#options;
    const { fence } = holding.lease;
    const at = (position: string | null) => ({ ...start, position: position ?? start.position });
    return {
      moveTo: async (position) => holding.move(at(position)),
      waitAfter: async (message, tries, failure) => {
        await holding.flush();
        const ms = await noteFailure(database, cursor, fence, message, tries, failure);
        if (ms === null) throw holding.end('the lease was lost');
        await this.#waitForRetry(holding, ms);
        await holding.noteBatch([message]);
      },
      pause: async (message, failure, beganMsAgo) => {
        await holding.flush();
        const paused = await pauseCursor(database, cursor, fence, message, failure, beganMsAgo);
        if (paused === null) throw holding.end('the lease was lost');
        if (!paused) return void (await holding.noteBatch([message]));
        emit({ name: 'destination_paused', destination: cursor, failure });
        throw holding.end('the destination is paused');
      },
      park: async (message, tries, failure, rejected, position) => {
        await holding.flush();
        const reason = rejected ? 'rejected' : 'exhausted';
        const parked = await parkMessage(
          database,
          cursor,
          fence,
          at(position),
          message,
          tries,
          reason,
          failure,
        );
        if (!parked) throw holding.end('the lease was lost');
        holding.endAfterCrash();
        emit({ name: 'stream_parked', cursor, messageId: message.id, tries, code: failure.code });
      },
    };
  }

  async #pause(ms: number): Promise<void> {
    this.#wake.reset();
    if (!this.#stopping) await this.#wake.wait(ms);
  }
}
