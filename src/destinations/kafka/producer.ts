// Idempotent Kafka producer: has an id from the cluster, and numbers the batches of each partition. It serves one call
// at a time over its own connections, so that aborting a call affects no other. A batch whose result is unknown is sent
// again with the same number, so that the broker recognises it. If that fails, or anything else is in doubt, the
// producer is discarded and the next call gets a new one.

import { delivered } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import { TurnBudget } from '../../core/turn-budget.js';
import { Client } from './client.js';
import type { ClientOptions, Connection, KafkaRecord, Library, ProduceResponse } from './client.js';
import type { Broker, Compression } from './options.js';
import { RetryWindow } from './retry-window.js';
import { PartitionBatches, fitting } from './partition-batches.js';
import type { Item } from './partition-batches.js';
import { leaderNotAvailable } from './topics.js';
import type { Topics } from './topics.js';
import { arrived, brokerCode, brokerOutcome, failureOutcome, errorCodes } from './error-codes.js';

type PartitionAnswer = ProduceResponse['responses'][number]['partitionResponses'][number];
/** A partition whose first batch must be sent again unchanged; the outcome applies if there is no time for that. */
type Resend = { readonly batches: PartitionBatches; readonly outcome: Outcome };

type Identity = { readonly producerId: bigint; readonly producerEpoch: number };

/** Batch numbers have 31 bits; before they run out, a new producer is made. */
const lastSequence = 2 ** 30;

/** Requests to several brokers, and of several calls, are compressed in different turns of the event loop. */
const compressing = new TurnBudget(10);

export class Producer {
  readonly #client: Client;
  readonly #topics: Topics;
  readonly #compression: Compression;
  readonly #retryWindowMs: number;
  readonly #sequences: InstanceType<Library['NumericMap']>;
  #identity: Identity | undefined;
  #spoiled = false;

  constructor(
    library: Library,
    topics: Topics,
    options: ClientOptions & { compression: Compression },
  ) {
    this.#client = new Client(library, options);
    this.#topics = topics;
    this.#compression = options.compression;
    this.#retryWindowMs = options.timeoutMs / 2;
    this.#sequences = new library.NumericMap();
  }

  get usable(): boolean {
    return !this.#spoiled && !this.#client.destroyed;
  }

  /** Aborts the call that it serves. */
  destroy(reason: Error): void {
    this.#client.destroy(reason);
  }

  /** Settles every item. */
  async send(items: readonly Item[], signal: AbortSignal): Promise<void> {
    const retryWindow = new RetryWindow(this.#retryWindowMs, signal);
    let partitions: readonly PartitionBatches[];
    try {
      this.#identity ??= await this.#identify(retryWindow);
      partitions = await this.#divide(items);
    } catch (error) {
      const outcome = failureOutcome(error);
      for (const item of items) item.settle(outcome);
      return;
    }
    await this.#sendRounds(partitions, retryWindow);
  }

  /** A broker that has just started cannot assign ids for a moment. */
  async #identify(retryWindow: RetryWindow): Promise<Identity> {
    for (;;) {
      try {
        return await this.#client.producerId();
      } catch (error) {
        const code = brokerCode(error);
        if (code === undefined || !errorCodes[code]?.soon || !(await retryWindow.wait()))
          throw error;
      }
    }
  }

  /** Groups the items by topic and partition, and keeps their order. */
  async #divide(items: readonly Item[]): Promise<readonly PartitionBatches[]> {
    const names = [...new Set(items.map(({ topic }) => topic))];
    const topics = await this.#topics.find(this.#client, names);
    const turn = this.#topics.nextTurn();
    const partitions = new Map<string, PartitionBatches>();
    for (const item of items) {
      const topic = topics.get(item.topic) ?? { errorCode: leaderNotAvailable };
      if ('errorCode' in topic) {
        item.settle(brokerOutcome(topic.errorCode, item.topic));
        continue;
      }
      const partition = this.#topics.partitionOf(topic, item.record.key, turn);
      const leader = topic.leaders[partition];
      if (leader === undefined) {
        item.settle(brokerOutcome(leaderNotAvailable, `${item.topic}/${partition}`));
        continue;
      }
      const name = `${item.topic}:${partition}`;
      const batches = partitions.get(name) ?? new PartitionBatches(item.topic, partition, leader);
      partitions.set(name, batches);
      batches.add(item);
    }
    return [...partitions.values()];
  }

  /** Sends in rounds: the first batch of every partition, with one request per broker. */
  async #sendRounds(
    partitions: readonly PartitionBatches[],
    retryWindow: RetryWindow,
  ): Promise<void> {
    for (;;) {
      const open = partitions.filter(({ first }) => first !== undefined);
      if (open.length === 0) return;
      const rounds = byLeader(open).map(async (group) =>
        this.#sendRound(fitting(group, this.#compression)),
      );
      const resends = (await Promise.all(rounds)).flat();
      if (resends.length === 0) continue;
      if (!this.#client.destroyed && (await retryWindow.wait()))
        await this.#findLeaders(resends.map(({ batches }) => batches));
      else for (const { batches, outcome } of resends) this.#giveUp(batches, outcome);
    }
  }

  /** Sends the first batches of the partitions of one leader. */
  async #sendRound(partitions: readonly PartitionBatches[]): Promise<Resend[]> {
    let response: ProduceResponse;
    try {
      const connection = await this.#connect(partitions[0]?.leader);
      if (this.#compression !== 'none') await compressing.wait();
      for (const { first } of partitions) if (first !== undefined) first.sent = true;
      const options = {
        compression: this.#compression,
        sequences: this.#sequences,
        ...this.#identity,
      };
      response = await compressing.spend(() =>
        this.#client.produce(connection, partitions.flatMap(recordsOf), options),
      );
    } catch (error) {
      const outcome = failureOutcome(error);
      return partitions.flatMap((batches) => {
        if (outcome.kind === 'retry' && batches.first?.sent) return [{ batches, outcome }];
        this.#giveUp(batches, outcome);
        return [];
      });
    }
    const answers = new Map(
      response.responses.flatMap(({ name, partitionResponses }) =>
        partitionResponses.map((answer) => [`${name}:${answer.index}`, answer] as const),
      ),
    );
    return partitions.flatMap((batches) => this.#take(batches, answers.get(batches.name)));
  }

  async #connect(leader: Broker | undefined): Promise<Connection> {
    if (leader === undefined) throw Object.assign(new Error('no leader'), noLeader);
    return this.#client.connect(leader);
  }

  /** Handles a broker's answer for the first batch of a partition. */
  #take(batches: PartitionBatches, answer: PartitionAnswer = noAnswer): Resend[] {
    const { errorCode, baseOffset, errorMessage, recordErrors } = answer;
    if (arrived.has(errorCode)) {
      const items = batches.shift();
      const sequence = this.#sequences.postIncrement(batches.name, items.length, 0);
      if (sequence > lastSequence) this.#spoiled = true;
      for (const [index, item] of items.entries()) {
        const reference = `${batches.topic}/${batches.partition}/${baseOffset + BigInt(index)}`;
        item.settle(baseOffset < 0n ? delivered() : delivered(reference));
      }
      return [];
    }
    const outcome = brokerOutcome(errorCode, errorMessage);
    if (errorCodes[errorCode]?.stale) return [{ batches, outcome }];
    if (outcome.kind === 'reject')
      batches.dropBadRecords(outcome, new Set(recordErrors.map(({ batchIndex }) => batchIndex)));
    else this.#giveUp(batches, outcome);
    return [];
  }

  /** It is unknown whether the first batch has arrived, so the number of the next one is unknown too. */
  #giveUp(batches: PartitionBatches, outcome: Outcome): void {
    if (batches.first?.sent) this.#spoiled = true;
    this.#topics.forget(batches.topic);
    batches.giveUp(outcome);
  }

  async #findLeaders(partitions: readonly PartitionBatches[]): Promise<void> {
    const names = [...new Set(partitions.map(({ topic }) => topic))];
    for (const name of names) this.#topics.forget(name);
    try {
      const topics = await this.#topics.find(this.#client, names);
      for (const batches of partitions) {
        const topic = topics.get(batches.topic);
        if (topic === undefined) continue;
        if ('errorCode' in topic)
          this.#giveUp(batches, brokerOutcome(topic.errorCode, batches.topic));
        else batches.leader = topic.leaders[batches.partition];
      }
    } catch {
      // no broker answers: the next round fails in the same way, and handles it
    }
  }
}

const noLeader = { apiCode: leaderNotAvailable };
const noAnswer: PartitionAnswer = {
  index: 0,
  errorCode: -1,
  baseOffset: -1n,
  logAppendTimeMs: -1n,
  logStartOffset: -1n,
  recordErrors: [],
  errorMessage: 'the answer leaves this partition out',
};

function byLeader(partitions: readonly PartitionBatches[]): PartitionBatches[][] {
  const groups = new Map<string, PartitionBatches[]>();
  for (const batches of partitions) {
    const name =
      batches.leader === undefined ? '' : `${batches.leader.host}:${batches.leader.port}`;
    groups.set(name, [...(groups.get(name) ?? []), batches]);
  }
  return [...groups.values()];
}

function recordsOf({ topic, partition, first }: PartitionBatches): KafkaRecord[] {
  return (first?.items ?? []).map(({ record: { key, value, headers } }) => ({
    topic,
    partition,
    value,
    headers,
    ...(key !== undefined && { key }),
  }));
}
