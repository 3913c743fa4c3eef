// What one call has for each partition: its records in their order, in parts of which each is one batch on the wire.
// A part is taken or refused as a whole, and the next one is not sent before it.

import { release } from '../../model/outcome.js';
import type { Outcome } from '../../model/outcome.js';
import type { Broker } from './client.js';
import type { RecordParts } from './records.js';

/** A record on its way; `settle` is called once. */
export type Item = {
  readonly topic: string;
  readonly record: RecordParts;
  settle(outcome: Outcome): void;
};

type Part = {
  items: Item[];
  /** It may have arrived: from now on it stays as it is. */
  sent: boolean;
};

/** A broker's own default takes batches of 1 MiB; a part may be a little larger than it is counted. */
const partBytes = 900_000;
/** A broker's own default takes requests of 100 MiB, and cuts the connection of a larger one. */
const requestBytes = 32 * 1024 * 1024;

/** As many of these as one request may hold, and one at least. */
export function fitting(runs: readonly Run[]): readonly Run[] {
  let bytes = 0;
  const tooMany = runs.findIndex((run, index) => {
    bytes += run.firstBytes;
    return index > 0 && bytes > requestBytes;
  });
  return tooMany < 0 ? runs : runs.slice(0, tooMany);
}

export class Run {
  readonly topic: string;
  readonly partition: number;
  leader: Broker | undefined;
  #parts: Part[] = [];
  #lastBytes = 0;

  constructor(topic: string, partition: number, leader: Broker) {
    this.topic = topic;
    this.partition = partition;
    this.leader = leader;
  }

  get name(): `${string}:${number}` {
    return `${this.topic}:${this.partition}`;
  }

  /** The part whose turn it is; undefined when all is done. */
  get first(): Part | undefined {
    return this.#parts[0];
  }

  get firstBytes(): number {
    return this.first?.items.reduce((sum, { record }) => sum + record.bytes, 0) ?? 0;
  }

  add(item: Item): void {
    const last = this.#parts.at(-1);
    this.#lastBytes += item.record.bytes;
    if (last !== undefined && this.#lastBytes <= partBytes) {
      last.items.push(item);
      return;
    }
    this.#parts.push({ items: [item], sent: false });
    this.#lastBytes = item.record.bytes;
  }

  /** The first part arrived. */
  shift(): readonly Item[] {
    return this.#parts.shift()?.items ?? [];
  }

  /** Nothing more of it is sent. */
  giveUp(outcome: Outcome): void {
    for (const { items } of this.#parts) for (const item of items) item.settle(outcome);
    this.#parts = [];
  }

  /**
   * The first part was refused. The guilty ones are known if the broker names them, or if there is only one; if not,
   * the halves are tried. What follows a guilty one and has its key is not sent: it would overtake.
   */
  refuse(outcome: Outcome, named: ReadonlySet<number>): void {
    const [part, ...others] = this.#parts;
    if (part === undefined) return;
    const { items } = part;
    if (items.length > 1 && named.size === 0) {
      const half = Math.ceil(items.length / 2);
      const halves = [items.slice(0, half), items.slice(half)];
      this.#parts = [...halves.map((each) => ({ items: each, sent: false })), ...others];
      return;
    }
    const guilty = new Set(items.filter((_, index) => items.length === 1 || named.has(index)));
    const behind = new Set<string>();
    const isLeft = (item: Item): boolean => {
      const key = item.record.key?.toString('latin1');
      if (guilty.has(item)) {
        item.settle(outcome);
        if (key !== undefined) behind.add(key);
        return false;
      }
      if (key === undefined || !behind.has(key)) return true;
      item.settle(release());
      return false;
    };
    this.#parts = this.#parts
      .map((each) => ({ items: each.items.filter(isLeft), sent: false }))
      .filter((each) => each.items.length > 0);
  }
}
