// Reads the log for one cursor: window by window and page by page, each page handed over before the cursor
// moves past it. Any number of readers may run under one name; the one that holds the lease reads, the others
// stand by. While a page is being processed the next ones are fetched, and the last move is on its way.

import {
  extendCursor,
  moveCursor,
  noteFailure,
  parkMessage,
  pauseCursor,
  releaseCursor,
  takeCursor,
} from '../database/cursors.js';
import type { CursorFilter, CursorLease, CursorPlace } from '../database/cursors.js';
import type { Database } from '../database/connection.js';
import { openWindow } from '../database/windows.js';
import type { PageSize, Window } from '../database/windows.js';
import { errorText } from '../errors.js';
import { inKeyOrder } from '../model/key-order.js';
import type { Emit } from '../telemetry/events.js';
import { Signal } from './signal.js';
import type { CursorSteps, StreamSender } from './stream-sender.js';
import { Ticker } from './ticker.js';
import { pagesOf, plannedPages } from './window-pages.js';
import { within } from './within.js';

export type StreamReaderOptions = {
  cursor: string;
  filters: readonly CursorFilter[];
  database: Database;
  /** Leases are extended even while every connection for work is busy. */
  control: Database;
  reader: { id: string; name: string; leaseMs: number };
  batchSize: number;
  batchBytes: number;
  /** The longest pause between two looks at an idle log. */
  pollMs: number;
  sender: StreamSender;
  emit: Emit;
};

/** The lease belongs to somebody else, or is given up. */
class LeaseEndedError extends Error {}

const shortestPollMs = 5;
/** How often an idle reader writes down that it has come further. */
const idleMoveMs = 5000;
const maxBackoffMs = 5000;
/** How often a reader that stands by asks for the lease. */
const standByMs = 1000;
/** After a death, pages are this much smaller: whatever kills the reader is found in a few steps. */
const cautionFactor = 8;

export class StreamReader {
  readonly #options: StreamReaderOptions;
  readonly #wake = new Signal();
  #stopping = false;
  #running: Promise<void> = Promise.resolve();
  #holding: Holding | undefined;

  constructor(options: StreamReaderOptions) {
    this.#options = options;
  }

  get reading(): boolean {
    return this.#holding !== undefined;
  }

  /** Takes the lease if it is free. Throws what will not pass by itself: a standby, another server's ids. */
  async start(): Promise<void> {
    const lease = await this.#take();
    this.#running = this.#run(lease);
  }

  /** Lets the page under way finish until the deadline (on the clock of performance.now()), then gives the lease up. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopping = true;
    this.#wake.raise();
    await within(deadlineMs, this.#running);
    this.#holding?.end('the reader is stopping');
    await within(Math.max(deadlineMs, performance.now() + 1000), this.#running);
  }

  async #take(): Promise<CursorLease | null> {
    const { control, cursor, reader } = this.#options;
    return takeCursor(control, cursor, reader);
  }

  async #run(first: CursorLease | null): Promise<void> {
    const { cursor, emit } = this.#options;
    let lease = first;
    let backoffMs = 0;
    while (!this.#stopping) {
      try {
        if (lease !== null) await this.#hold(lease);
        backoffMs = 0;
        if (!this.#stopping && lease === null) await this.#pause(standByMs);
        lease = this.#stopping ? null : await this.#take();
      } catch (error) {
        lease = null;
        emit({ name: 'trouble', what: `read ${cursor}`, error: errorText(error) });
        backoffMs = Math.min(Math.max(backoffMs * 2, 50), maxBackoffMs);
        await this.#pause(backoffMs);
      }
    }
  }

  async #hold(lease: CursorLease): Promise<void> {
    const { cursor, control, reader, emit } = this.#options;
    const holding = new Holding(this.#options, lease);
    const keeper = new Ticker('extend cursor', Math.floor(reader.leaseMs / 3), emit, async () => {
      const { held, paused } = await extendCursor(control, cursor, lease.fence);
      if (!held) holding.end('the lease was lost');
      holding.paused = paused;
    });
    this.#holding = holding;
    keeper.start();
    emit({ name: 'stream_taken', cursor });
    try {
      await this.#read(holding);
      await holding.finish();
    } catch (error) {
      if (!(error instanceof LeaseEndedError)) throw error;
    } finally {
      this.#holding = undefined;
      // a move that came after the release would take the lease once more, for nobody
      await holding.flush().catch(() => {});
      await keeper.stop();
      const released = await releaseCursor(control, cursor, lease.fence).catch(() => false);
      if (!released && !this.#stopping) emit({ name: 'stream_lost', cursor });
    }
  }

  async #read(holding: Holding): Promise<void> {
    const { database, filters, pollMs } = this.#options;
    let pauseMs = 0;
    while (!this.#stopping && !holding.paused) {
      holding.check();
      this.#wake.reset();
      const window = await openWindow(database, holding.place, filters, holding.pageSize);
      const found = await this.#readPages(holding, window);
      if (this.#stopping) return;
      if (found) pauseMs = 0;
      else {
        await holding.pass(window.target);
        pauseMs = Math.min(Math.max(pauseMs * 2, shortestPollMs), pollMs);
        await this.#wake.wait(pauseMs);
      }
    }
  }

  /** Reads one window to its end, or until the reader stops; false if all of it was read and nothing was for this cursor. */
  async #readPages(holding: Holding, window: Window): Promise<boolean> {
    const { database, filters, sender, cursor, emit } = this.#options;
    const { seen, target } = window;
    let found = false;
    // a reader that died over these messages looks at no more of them than it must
    for await (const page of pagesOf(database, window, filters, () => holding.pageSize)) {
      holding.check();
      const { position, finished } = page;
      if (page.messages.length > 0) {
        found = true;
        const startedMs = performance.now();
        const messages = inKeyOrder(page.messages);
        const start = { seen, target, position: holding.place.position };
        const steps = this.#stepsOf(holding, start);
        await sender.send(messages, steps, holding.signal, holding.deaths);
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
      if (found || !finished) await holding.move(place, page.messages.length);
      // what was not looked at may hold something
      if (this.#stopping || holding.paused) return found || !finished;
    }
    return found;
  }

  /** `start` is where the page begins. */
  #stepsOf(holding: Holding, start: CursorPlace): CursorSteps {
    const { database, cursor, emit } = this.#options;
    const { fence } = holding.lease;
    const at = (position: string | null) => ({ ...start, position: position ?? start.position });
    return {
      moveTo: async (position) => holding.move(at(position), 0),
      waitAfter: async (message, tries, failure) => {
        await holding.flush();
        const ms = await noteFailure(database, cursor, fence, message, tries, failure);
        if (ms === null) throw holding.end('the lease was lost');
        await this.#pause(ms);
        if (this.#stopping) throw holding.end('the reader is stopping');
        if (holding.paused) throw holding.end('the destination is paused');
        holding.check();
      },
      pause: async (message, failure, beganMsAgo) => {
        await holding.flush();
        const paused = await pauseCursor(database, cursor, fence, message, failure, beganMsAgo);
        if (paused === null) throw holding.end('the lease was lost');
        if (!paused) return;
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
        holding.calm();
        emit({ name: 'stream_parked', cursor, messageId: message.id, tries, code: failure.code });
      },
    };
  }

  async #pause(ms: number): Promise<void> {
    this.#wake.reset();
    if (!this.#stopping) await this.#wake.wait(ms);
  }
}

/** The cursor while this reader holds it. */
class Holding {
  readonly lease: CursorLease;
  place: CursorPlace;
  /** Somebody paused the destination: to be given up after the page under way, or when one of it is to be tried again. */
  paused = false;
  readonly #options: StreamReaderOptions;
  readonly #ended = new AbortController();
  #moving: Promise<void> = Promise.resolve();
  #movedMs = performance.now();
  #unwritten = false;
  #deaths: number;
  /** Messages to pass before what the last reader died over is surely behind. */
  #caution: number;

  constructor(options: StreamReaderOptions, lease: CursorLease) {
    this.#options = options;
    this.lease = lease;
    this.place = { seen: lease.seen, target: lease.target, position: lease.position };
    this.#deaths = lease.deaths;
    this.#caution = lease.deaths > 0 ? options.batchSize : 0;
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  get cautious(): boolean {
    return this.#caution > 0;
  }

  get pageSize(): PageSize {
    const { batchSize: limit, batchBytes: maxBytes } = this.#options;
    if (!this.cautious) return { limit, maxBytes, pages: plannedPages };
    const few = Math.max(Math.floor(limit / cautionFactor ** this.#deaths), 1);
    return { limit: few, maxBytes, pages: 1 };
  }

  get deaths(): number {
    return this.#deaths;
  }

  /** What the last reader died over lies behind. */
  calm(): void {
    this.#deaths = 0;
    this.#caution = 0;
  }

  /** No more may be read or moved under this lease. */
  end(why: string): Error {
    const error = new LeaseEndedError(why);
    this.#ended.abort(error);
    return error;
  }

  check(): void {
    this.#ended.signal.throwIfAborted();
  }

  /** One move at a time; it is waited for by the next one, so that it travels while the next page is processed. */
  async move(place: CursorPlace, passed: number): Promise<void> {
    const { database, cursor } = this.#options;
    await this.flush();
    const wasCautious = this.cautious;
    this.#caution = Math.max(this.#caution - passed, 0);
    if (!this.cautious) this.calm();
    this.place = place;
    this.#unwritten = false;
    this.#movedMs = performance.now();
    this.#moving = moveCursor(database, cursor, this.lease.fence, place, !this.cautious).then(
      (moved) => {
        if (!moved) throw this.end('the lease was lost');
      },
    );
    this.#moving.catch(() => {});
    if (wasCautious) await this.#moving;
  }

  async flush(): Promise<void> {
    await this.#moving;
  }

  /** Past a window that had nothing: it is enough to write that down now and then. */
  async pass(target: string): Promise<void> {
    const place = { seen: target, target: null, position: null };
    this.place = place;
    this.#unwritten = true;
    if (performance.now() - this.#movedMs > idleMoveMs) await this.move(place, 0);
  }

  /** Leaves nothing unwritten. */
  async finish(): Promise<void> {
    if (this.#unwritten) await this.move(this.place, 0);
    await this.flush();
  }
}
