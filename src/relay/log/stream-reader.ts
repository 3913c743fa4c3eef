// Stream reader: reads with a cursor, together with other processes. It holds its share of the cursor's partitions, each
// with a partition reader; a cursor with one partition has one reader, and the other processes stand by. Once a second
// it looks whether readers have come or gone: it takes free partitions up to its share, and releases what is above it.
// The reader of a drain takes what is free, and ends when it has caught up.

import {
  joinCursor,
  leaveCursor,
  partitionsLeft,
  takeCursor,
  withdrawDeath,
} from '../../database/cursors.js';
import type { CursorLease, CursorReader, LeaseKey } from '../../database/cursors.js';
import { troubleOf } from '../../telemetry/events.js';
import { addDrained, noneDrained } from '../drains.js';
import type { Drained } from '../drains.js';
import { Signal } from '../signal.js';
import { within } from '../within.js';
import { PartitionReader, unfinished } from './partition-reader.js';
import type {
  PartitionEnd,
  PartitionReaderOptions,
  Siblings,
  StreamDrained,
} from './partition-reader.js';
import type { StreamSender } from './stream-sender.js';

export type { StreamDrained } from './partition-reader.js';

export type StreamReaderOptions = PartitionReaderOptions & {
  cursor: string;
  reader: CursorReader;
  /** Makes the sender of a partition. */
  senderOf: (part: Pick<CursorLease, 'partition' | 'partitions'>) => StreamSender;
  /** For a drain: it ends when it has read what was committed at its start, or so many messages. */
  drain?: { maxMessages: number } | null;
};

const maxBackoffMs = 5000;
/** How often a reader looks for free partitions, and for its share; more often if the lease is short. */
const standByMs = 1000;
/** How often a drain asks for a lease that no reader holds: another one may have released it just now. */
const drainAsks = 3;

export class StreamReader {
  readonly #options: StreamReaderOptions;
  readonly #wake = new Signal();
  /** The partitions that this process reads, by their first hash. */
  readonly #held = new Map<number, { reader: PartitionReader; ended: Promise<void> }>();
  /** Outcomes of partitions that are no longer held. */
  readonly #counts: Drained = { ...noneDrained };
  readonly #siblings: Siblings;
  #stopping = false;
  #running: Promise<void> = Promise.resolve();
  /** Other readers know of this one. */
  #joined = false;
  #lost: LeaseKey[] = [];
  #backoffMs = 0;
  #retryAtMs = 0;
  /** What a drain has done with the partitions that it has read, by their first hash. */
  readonly #done = new Map<number, StreamDrained>();
  #drained: StreamDrained | undefined;
  /** The most partitions that a drain can read, as far as it knows. */
  #most = Number.POSITIVE_INFINITY;

  constructor(options: StreamReaderOptions) {
    this.#options = options;
    this.#siblings = this.#siblingsOf(options.drain?.maxMessages ?? null);
  }

  get cursor(): string {
    return this.#options.cursor;
  }

  get reading(): boolean {
    return this.#held.size > 0;
  }

  /** The numbers of the partitions that this process reads, from 0. */
  get partitions(): number[] {
    const numbers = [...this.#held.values()].map(({ reader }) => reader.lease.partition);
    return [...new Set(numbers)].toSorted((one, other) => one - other);
  }

  /**
   * Takes free partitions. Throws permanent errors: the server is a standby, or the ids come from another server.
   */
  async start(): Promise<void> {
    const { drain } = this.#options;
    const taking = drain ? this.#takeNext() : this.#takeShare();
    this.#running = taking.then(
      async () => (drain ? this.#drain() : this.#run()),
      () => undefined,
    );
    await taking;
  }

  /** Resolves at the end of a drain, or at a stop, when all leases are released. */
  async ended(): Promise<void> {
    await this.#running;
  }

  get drained(): StreamDrained {
    return this.#drained ?? unfinished;
  }

  /** Messages that are done, and failed tries, by their outcome. */
  get counts(): Drained {
    const counts = { ...this.#counts };
    for (const { reader } of this.#held.values()) addDrained(counts, reader.sender.counts);
    return counts;
  }

  /** Lets the current pages finish until the deadline (on the clock of performance.now()), then gives up the leases. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopping = true;
    this.#wake.raise();
    for (const { reader } of this.#held.values()) reader.leave();
    await within(deadlineMs, this.#settled());
    for (const { reader } of this.#held.values()) reader.end('the reader is stopping');
    await within(Math.max(deadlineMs, performance.now() + 1000), this.#settled());
  }

  async #settled(): Promise<void> {
    await this.#running;
    await Promise.all([...this.#held.values()].map(({ ended }) => ended));
  }

  async #run(): Promise<void> {
    while (!this.#stopping) {
      // other readers forget one that does not come back within a lease
      await this.#pause(Math.min(standByMs, this.#options.reader.leaseMs / 3));
      if (!this.#stopping) await this.#takeShare().catch((error: unknown) => this.#failed(error));
    }
    await Promise.all([...this.#held.values()].map(({ ended }) => ended));
    const { control, cursor, reader } = this.#options;
    if (this.#joined) await leaveCursor(control, cursor, reader).catch(() => {});
  }

  /** Releases partitions above this reader's share, or takes free ones up to it. */
  async #takeShare(): Promise<void> {
    const { control, cursor, reader } = this.#options;
    const { partitions, share } = await joinCursor(control, cursor, reader);
    this.#joined ||= partitions > 1;
    for (const each of [...this.#held.values()].slice(share)) each.reader.leave();
    let isFree = true;
    while (isFree && !this.#stopping && this.#held.size < share) isFree = await this.#takeNext();
    await this.#withdrawDeaths();
  }

  /** Other readers may have counted this one as dead. */
  async #withdrawDeaths(): Promise<void> {
    for (const lost of this.#lost.splice(0)) await withdrawDeath(this.#options.control, lost);
  }

  /**
   * Takes a partition that is free, and that a drain has not read yet. Not one whose lease has expired while this process
   * still has a call for it in flight. False: there is none.
   */
  async #takeNext(): Promise<boolean> {
    const { control, cursor, reader } = this.#options;
    const except = [...this.#done.keys(), ...this.#held.keys()];
    const lease = await takeCursor(control, cursor, reader, except);
    if (lease === null) return false;
    this.#begin(lease);
    return true;
  }

  /** A lease that was taken during a stop is held to release it. */
  #begin(lease: CursorLease): void {
    // a partition with an end makes room for another one
    this.#most = lease.partitions === 1 && lease.until === null ? 1 : Number.POSITIVE_INFINITY;
    const sender = this.#options.senderOf(lease);
    const reader = new PartitionReader(this.#options, lease, sender, this.#siblings);
    if (this.#stopping) reader.leave();
    const ended = reader.run().then(
      (end) => this.#ended(reader, end),
      (error: unknown) => {
        this.#ended(reader, {});
        this.#failed(error, reader);
      },
    );
    this.#held.set(lease.hashFrom, { reader, ended });
  }

  #ended({ lease, sender }: PartitionReader, { drained, lost }: PartitionEnd): void {
    this.#held.delete(lease.hashFrom);
    addDrained(this.#counts, sender.counts);
    if (lost) this.#lost.push(lost);
    if (drained) this.#done.set(lease.hashFrom, drained);
    this.#wake.raise();
  }

  /** Waits longer after each failure. Partitions that fail at the same time count as one failure. */
  #failed(error: unknown, reader?: PartitionReader): void {
    const { cursor, emit } = this.#options;
    emit(troubleOf(`read ${cursor}`, error));
    const nowMs = performance.now();
    if (nowMs < this.#retryAtMs) return;
    const hasWorked = reader !== undefined && nowMs - reader.startedMs > maxBackoffMs;
    this.#backoffMs = Math.min(Math.max(hasWorked ? 0 : this.#backoffMs * 2, 50), maxBackoffMs);
    this.#retryAtMs = nowMs + this.#backoffMs;
  }

  /** Waits until a partition has ended or the time has passed; after a failure, as long as that asks for. */
  async #pause(ms: number): Promise<void> {
    if (!this.#stopping) await this.#wake.wait(ms);
    this.#wake.reset();
    for (;;) {
      const leftMs = this.#retryAtMs - performance.now();
      if (this.#stopping || leftMs <= 0) return;
      await this.#wake.wait(leftMs);
      this.#wake.reset();
    }
  }

  /** Reads all partitions that are free, each until it has caught up. */
  async #drain(): Promise<void> {
    const { control, cursor } = this.#options;
    let asked = 0;
    while (!this.#stopping && this.#drained === undefined) {
      try {
        if (!this.#hasAll && (await this.#takeNext())) continue;
        await this.#withdrawDeaths();
        if (this.#held.size > 0) {
          await this.#pause(standByMs);
          continue;
        }
        const { partitions, heldBy } = this.#hasAll
          ? { partitions: 0, heldBy: null }
          : await partitionsLeft(control, cursor, [...this.#done.keys()]);
        // nothing is due in partitions that no reader holds: the destination is paused
        if (heldBy !== null || partitions === 0 || ++asked >= drainAsks)
          this.#drained = this.#together(heldBy);
      } catch (error) {
        this.#failed(error);
        await this.#pause(0);
      }
    }
    await Promise.all([...this.#held.values()].map(({ ended }) => ended));
  }

  /** A drain reads or has read the only partition. */
  get #hasAll(): boolean {
    return this.#held.size + this.#done.size >= this.#most;
  }

  #together(heldBy: string | null): StreamDrained {
    const all = [...this.#done.values()];
    const retries = all.flatMap(({ retryInMs }) => retryInMs ?? []);
    return {
      finished: heldBy === null && all.every(({ finished }) => finished),
      heldBy,
      retryInMs: retries.length === 0 ? null : Math.min(...retries),
    };
  }

  /** One idle partition looks at the log for all that are idle, and wakes them when there is something. */
  #siblingsOf(maxMessages: number | null): Siblings {
    let left = maxMessages;
    const others = (than: PartitionReader) =>
      [...this.#held.values()].map(({ reader }) => reader).filter((reader) => reader !== than);
    return {
      get left() {
        return left;
      },
      take: (messages) => {
        if (left !== null) left -= messages;
      },
      news: (from) => {
        for (const reader of others(from)) if (reader.idle) reader.wake();
      },
      pauseMs: (of, ms) => {
        const isFirst = ({ lease }: PartitionReader) => lease.hashFrom < of.lease.hashFrom;
        return others(of).some((each) => each.idle && isFirst(each)) ? standByMs : ms;
      },
    };
  }
}
