// Leaders of partitions, as the cluster last reported them, shared by all producers of a destination; and the partition
// of a message. A key always maps to the same partition, the one that Java's producer chooses too. Messages without a
// key fill one partition per call, so that a call is one batch.

import type { Client } from './client.js';
import type { Broker } from './options.js';

/** By partition: the broker that leads it, or undefined if there is none now. */
export type Topic = { readonly leaders: readonly (Broker | undefined)[] };
export type TopicAnswer = Topic | { readonly errorCode: number };

const keptMs = 300_000;

export class Topics {
  readonly #createTopics: boolean;
  readonly #hash: (key: Buffer) => number;
  readonly #known = new Map<string, { topic: Topic; readMs: number }>();
  #turn = 0;

  constructor(createTopics: boolean, hash: (key: Buffer) => number) {
    this.#createTopics = createTopics;
    this.#hash = hash;
  }

  async find(client: Client, names: readonly string[]): Promise<Map<string, TopicAnswer>> {
    const found = new Map<string, TopicAnswer>();
    const asked: string[] = [];
    for (const name of names) {
      const known = this.#known.get(name);
      if (known === undefined || performance.now() - known.readMs > keptMs) asked.push(name);
      else found.set(name, known.topic);
    }
    if (asked.length === 0) return found;
    const { brokers, topics } = await client.metadata(asked, this.#createTopics);
    const byId = new Map(brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }]));
    for (const { name, errorCode, partitions } of topics) {
      if (!name) continue;
      if (errorCode !== 0 || partitions.length === 0) {
        found.set(name, { errorCode: errorCode || leaderNotAvailable });
        continue;
      }
      const leaders: (Broker | undefined)[] = [];
      for (const each of partitions) leaders[each.partitionIndex] = byId.get(each.leaderId);
      const topic = { leaders };
      // not cached while a leader is missing, so that the next call looks again
      if (leaders.every((leader) => leader !== undefined))
        this.#known.set(name, { topic, readMs: performance.now() });
      found.set(name, topic);
    }
    return found;
  }

  forget(name: string): void {
    this.#known.delete(name);
  }

  partitionOf({ leaders }: Topic, key: Buffer | undefined, turn: number): number {
    if (key !== undefined) return (this.#hash(key) & 0x7fffffff) % leaders.length;
    const start = turn % leaders.length;
    const led = leaders.findIndex(
      (_, step) => leaders[(start + step) % leaders.length] !== undefined,
    );
    return led < 0 ? start : (start + led) % leaders.length;
  }

  /** A number per call, which selects the partition of messages without a key. */
  nextTurn(): number {
    this.#turn = (this.#turn + 1) % 0x7fffffff;
    return this.#turn;
  }
}

export const leaderNotAvailable = 5;
export const topicMissing = 3;
