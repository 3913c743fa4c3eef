// Stream reader: reads the log for one cursor, window by window and page by page. Each page is handed over before
// the cursor moves past it. Any number of readers may have one name; the holder of the lease reads, the others stand
// by. While a page is processed, the next pages are read and the last move is written.

import {
  extendCursor,
  noteFailure,
  parkMessage,
  pauseCursor,
  releaseCursor,
  takeCursor,
  withdrawDeath,
} from '../../database/cursors.js';
import type { CursorLease, CursorPlace } from '../../database/cursors.js';
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
};

const shortestPollMs = 5;
const maxBackoffMs = 5000;
/** How often a reader that stands by asks for the lease. */
const standByMs = 1000;

export class StreamReader {
  readonly #options: StreamReaderOptions;
  readonly #wake = new Signal();
  #stopping = false;
  #running: Promise<void> = Promise.resolve();
  #holding: CursorHolding | undefined;
  /** The fence of a lost lease that this process was never late to extend. Such a loss must not count as a death. */
  #lostFence: string | undefined;

  constructor(options: StreamReaderOptions) {
    this.#options = options;
  }

  get reading(): boolean {
    return this.#holding !== undefined;
  }

  /**
   * Takes the lease if it is free. Throws permanent errors: the server is a standby, or the ids come from another
   * server.
   */
  async start(): Promise<void> {
    const lease = await this.#take();
    this.#running = this.#run(lease);
  }

  /** Lets the current page finish until the deadline (on the clock of performance.now()), then gives up the lease. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopping = true;
    this.#wake.raise();
    await within(deadlineMs, this.#running);
    this.#holding?.end('the reader is stopping');
    await within(Math.max(deadlineMs, performance.now() + 1000), this.#running);
  }

  async #take(): Promise<CursorLease | null> {
    const { control, cursor, reader } = this.#options;
    const lease = await takeCursor(control, cursor, reader);
    // another reader may have counted this one as dead
    if (lease === null && this.#lostFence !== undefined)
      await withdrawDeath(control, cursor, this.#lostFence);
    this.#lostFence = undefined;
    return lease;
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
        emit(troubleOf(`read ${cursor}`, error));
        backoffMs = Math.min(Math.max(backoffMs * 2, 50), maxBackoffMs);
        await this.#pause(backoffMs);
      }
    }
  }

  async #hold(lease: CursorLease): Promise<void> {
    const { cursor, control, reader, emit } = this.#options;
    const holding = new CursorHolding(this.#options, lease);
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
      await this.#read(holding);
      await holding.finish();
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

  async #read(holding: CursorHolding): Promise<void> {
    const { cursor, database, pollMs } = this.#options;
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
      if (this.#stopping) return;
      if (found) pauseMs = 0;
      else {
        await holding.pass(window);
        if (!window.isLast) continue;
        pauseMs = Math.min(Math.max(pauseMs * 2, shortestPollMs), pollMs);
        await this.#wake.wait(pauseMs);
      }
    }
  }

  /** Reads one window to its end, or until the reader stops. False if the whole window held nothing for this cursor. */
  async #readPages(holding: CursorHolding, window: Window): Promise<boolean> {
    const { database, sender, cursor, emit } = this.#options;
    const { filters } = holding.lease;
    const { seen, target } = window;
    let found = false;
    for await (const page of pagesOf(database, window, filters, () => holding.pageSize)) {
      holding.check();
      const { position, finished } = page;
      if (page.messages.length > 0) {
        found = true;
        const startedMs = performance.now();
        const messages = inKeyOrder(page.messages);
        const start = { seen, target, position: holding.place.position };
        const steps = this.#stepsOf(holding, start);
        const deaths = await holding.handOver(messages);
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
      if (page.messages.length > 0) holding.passed(page, window);
      if (found || !finished) await holding.move(place);
      // the unread rest of the window may hold messages
      if (this.#stopping || holding.paused) return found || !finished;
    }
    return found;
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
        await this.#pause(ms);
        if (this.#stopping) throw holding.end('the reader is stopping');
        if (holding.paused) throw holding.end('the destination is paused');
        holding.check();
        await holding.handOver([message]);
      },
      pause: async (message, failure, beganMsAgo) => {
        await holding.flush();
        const paused = await pauseCursor(database, cursor, fence, message, failure, beganMsAgo);
        if (paused === null) throw holding.end('the lease was lost');
        if (!paused) return void (await holding.handOver([message]));
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
