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
import { Run, fitting } from './runs.js';
import type { Item } from './runs.js';
import { leaderNotAvailable } from './topics.js';
import type { Topics } from './topics.js';
import { arrived, brokerCode, brokerOutcome, failureOutcome, errorCodes } from './error-codes.js';

type PartitionAnswer = ProduceResponse['responses'][number]['partitionResponses'][number];
/** A run whose first part must be sent again unchanged; the outcome applies if there is no time for that. */
type Resend = { readonly run: Run; readonly outcome: Outcome };

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
    let runs: readonly Run[];
    try {
      this.#identity ??= await this.#identify(retryWindow);
      runs = await this.#divide(items);
    } catch (error) {
      const outcome = failureOutcome(error);
      for (const item of items) item.settle(outcome);
      return;
    }
    await this.#sendRuns(runs, retryWindow);
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
  async #divide(items: readonly Item[]): Promise<readonly Run[]> {
    const names = [...new Set(items.map(({ topic }) => topic))];
    const topics = await this.#topics.find(this.#client, names);
    const turn = this.#topics.nextTurn();
    const runs = new Map<string, Run>();
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
      const run = runs.get(name) ?? new Run(item.topic, partition, leader);
      runs.set(name, run);
      run.add(item);
    }
    return [...runs.values()];
  }

  /** Sends in rounds: the first part of every partition, with one request per broker. */
  async #sendRuns(runs: readonly Run[], retryWindow: RetryWindow): Promise<void> {
    for (;;) {
      const open = runs.filter(({ first }) => first !== undefined);
      if (open.length === 0) return;
      const rounds = byLeader(open).map(async (group) =>
        this.#sendRound(fitting(group, this.#compression)),
      );
      const resends = (await Promise.all(rounds)).flat();
      if (resends.length === 0) continue;
      if (!this.#client.destroyed && (await retryWindow.wait()))
        await this.#findLeaders(resends.map(({ run }) => run));
      else for (const { run, outcome } of resends) this.#giveUp(run, outcome);
    }
  }

  /** Sends the first parts of the runs of one leader. */
  async #sendRound(runs: readonly Run[]): Promise<Resend[]> {
    let response: ProduceResponse;
    try {
      const connection = await this.#connect(runs[0]?.leader);
      if (this.#compression !== 'none') await compressing.wait();
      for (const { first } of runs) if (first !== undefined) first.sent = true;
      const options = {
        compression: this.#compression,
        sequences: this.#sequences,
        ...this.#identity,
      };
      response = await compressing.spend(() =>
        this.#client.produce(connection, runs.flatMap(recordsOf), options),
      );
    } catch (error) {
      const outcome = failureOutcome(error);
      return runs.flatMap((run) => {
        if (outcome.kind === 'retry' && run.first?.sent) return [{ run, outcome }];
        this.#giveUp(run, outcome);
        return [];
      });
    }
    const answers = new Map(
      response.responses.flatMap(({ name, partitionResponses }) =>
        partitionResponses.map((answer) => [`${name}:${answer.index}`, answer] as const),
      ),
    );
    return runs.flatMap((run) => this.#take(run, answers.get(run.name)));
  }

  async #connect(leader: Broker | undefined): Promise<Connection> {
    if (leader === undefined) throw Object.assign(new Error('no leader'), noLeader);
    return this.#client.connect(leader);
  }

  /** Handles a broker's answer for the first part of a run. */
  #take(run: Run, answer: PartitionAnswer = noAnswer): Resend[] {
    const { errorCode, baseOffset, errorMessage, recordErrors } = answer;
    if (arrived.has(errorCode)) {
      const items = run.shift();
      const sequence = this.#sequences.postIncrement(run.name, items.length, 0);
      if (sequence > lastSequence) this.#spoiled = true;
      for (const [index, item] of items.entries()) {
        const reference = `${run.topic}/${run.partition}/${baseOffset + BigInt(index)}`;
        item.settle(baseOffset < 0n ? delivered() : delivered(reference));
      }
      return [];
    }
    const outcome = brokerOutcome(errorCode, errorMessage);
    if (errorCodes[errorCode]?.stale) return [{ run, outcome }];
    if (outcome.kind === 'reject')
      run.refuse(outcome, new Set(recordErrors.map(({ batchIndex }) => batchIndex)));
    else this.#giveUp(run, outcome);
    return [];
  }

  /** It is unknown whether the first part has arrived, so the number of the next one is unknown too. */
  #giveUp(run: Run, outcome: Outcome): void {
    if (run.first?.sent) this.#spoiled = true;
    this.#topics.forget(run.topic);
    run.giveUp(outcome);
  }

  async #findLeaders(runs: readonly Run[]): Promise<void> {
    const names = [...new Set(runs.map(({ topic }) => topic))];
    for (const name of names) this.#topics.forget(name);
    try {
      const topics = await this.#topics.find(this.#client, names);
      for (const run of runs) {
        const topic = topics.get(run.topic);
        if (topic === undefined) continue;
        if ('errorCode' in topic) this.#giveUp(run, brokerOutcome(topic.errorCode, run.topic));
        else run.leader = topic.leaders[run.partition];
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

function byLeader(runs: readonly Run[]): Run[][] {
  const groups = new Map<string, Run[]>();
  for (const run of runs) {
    const name = run.leader === undefined ? '' : `${run.leader.host}:${run.leader.port}`;
    groups.set(name, [...(groups.get(name) ?? []), run]);
  }
  return [...groups.values()];
}

function recordsOf({ topic, partition, first }: Run): KafkaRecord[] {
  return (first?.items ?? []).map(({ record: { key, value, headers } }) => ({
    topic,
    partition,
    value,
    headers,
    ...(key !== undefined && { key }),
  }));
}
