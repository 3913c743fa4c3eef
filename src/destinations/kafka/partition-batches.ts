// Partition batches: the records of one call for one partition, in order, divided into batches. A broker accepts or
// rejects a batch as a whole. If it rejects one, `dropBadRecords` finds the bad ones, so that the others still arrive.

import { release } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import type { Broker, Compression } from './options.js';
import type { RecordParts } from './records.js';

/** A record in flight; `settle` is called once. */
export type Item = {
  readonly topic: string;
  readonly record: RecordParts;
  settle(outcome: Outcome): void;
};

type Batch = {
  items: Item[];
  /** The batch may have arrived, so it must not be changed any more. */
  sent: boolean;
};

/** Brokers accept batches of 1 MiB by default; a batch may be a little larger than its estimate. */
const batchBytes = 900_000;
/** Brokers accept requests of 100 MiB by default, and close the connection on a larger one. */
const requestBytes = 32 * 1024 * 1024;
/** The library compresses a request in one turn of the event loop, with gzip 50 ms for each mebibyte. */
const compressedBytes = 1024 * 1024;

/** As many partitions as fit into one request with their first batches, and at least one. */
export function fitting(
  partitions: readonly PartitionBatches[],
  compression: Compression,
): readonly PartitionBatches[] {
  const mostBytes = compression === 'none' ? requestBytes : compressedBytes;
  let bytes = 0;
  const tooMany = partitions.findIndex((batches, index) => {
    bytes += batches.firstBytes;
    return index > 0 && bytes > mostBytes;
  });
  return tooMany < 0 ? partitions : partitions.slice(0, tooMany);
}

export class PartitionBatches {
  readonly topic: string;
  readonly partition: number;
  leader: Broker | undefined;
  #batches: Batch[] = [];
  #lastBytes = 0;

  constructor(topic: string, partition: number, leader: Broker) {
    this.topic = topic;
    this.partition = partition;
    this.leader = leader;
  }

  get name(): `${string}:${number}` {
    return `${this.topic}:${this.partition}`;
  }

  /** The next batch to send; undefined when all is done. */
  get first(): Batch | undefined {
    return this.#batches[0];
  }

  get firstBytes(): number {
    return this.first?.items.reduce((sum, { record }) => sum + record.bytes, 0) ?? 0;
  }

  add(item: Item): void {
    const last = this.#batches.at(-1);
    this.#lastBytes += item.record.bytes;
    if (last !== undefined && this.#lastBytes <= batchBytes) {
      last.items.push(item);
      return;
    }
    this.#batches.push({ items: [item], sent: false });
    this.#lastBytes = item.record.bytes;
  }

  /** Removes the first batch, which has arrived. */
  shift(): readonly Item[] {
    return this.#batches.shift()?.items ?? [];
  }

  /** Settles all remaining records with this outcome. */
  giveUp(outcome: Outcome): void {
    for (const { items } of this.#batches) for (const item of items) item.settle(outcome);
    this.#batches = [];
  }

  /**
   * Handles a rejected first batch. The bad records are known if the broker names them or if there is only one;
   * otherwise the batch is halved. Later records with the key of a bad one are not sent, because they would overtake
   * it.
   */
  dropBadRecords(outcome: Outcome, named: ReadonlySet<number>): void {
    const [batch, ...others] = this.#batches;
    if (batch === undefined) return;
    const { items } = batch;
    if (items.length > 1 && named.size === 0) {
      const half = Math.ceil(items.length / 2);
      const halves = [items.slice(0, half), items.slice(half)];
      this.#batches = [...halves.map((each) => ({ items: each, sent: false })), ...others];
      return;
    }
    const bad = new Set(items.filter((_, index) => items.length === 1 || named.has(index)));
    const behind = new Set<string>();
    const isLeft = (item: Item): boolean => {
      const key = item.record.key?.toString('latin1');
      if (bad.has(item)) {
        item.settle(outcome);
        if (key !== undefined) behind.add(key);
        return false;
      }
      if (key === undefined || !behind.has(key)) return true;
      item.settle(release());
      return false;
    };
    this.#batches = this.#batches
      .map((each) => ({ items: each.items.filter(isLeft), sent: false }))
      .filter((each) => each.items.length > 0);
  }
}
