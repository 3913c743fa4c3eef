// One idempotent producer: an id from the cluster, and a number for each batch of each partition. It serves one call
// at a time and has connections of its own, so that giving up a call gives up nothing else. A batch whose fate is
// unknown is sent again with the same number, by which the broker recognises it. If that does not succeed in time,
// or anything else is doubtful, the producer is spoiled, and the next call gets a new one.

import { delivered } from '../../model/outcome.js';
import type { Outcome } from '../../model/outcome.js';
import { Client } from './client.js';
import type {
  Broker,
  ClientOptions,
  Compression,
  Connection,
  KafkaRecord,
  Library,
  ProduceResponse,
} from './client.js';
import { Patience } from './patience.js';
import { Run, fitting } from './runs.js';
import type { Item } from './runs.js';
import { leaderNotAvailable } from './topics.js';
import type { Topics } from './topics.js';
import { arrived, brokerCode, brokerOutcome, failureOutcome, verdicts } from './verdicts.js';

type PartitionAnswer = ProduceResponse['responses'][number]['partitionResponses'][number];
/** A first part that must be sent again as it is, and what its run gets if there is no time for that. */
type Doubt = { readonly run: Run; readonly outcome: Outcome };

type Identity = { readonly producerId: bigint; readonly producerEpoch: number };

/** The numbers of batches have 31 bits; a new producer begins anew. */
const lastSequence = 2 ** 30;

export class Producer {
  readonly #client: Client;
  readonly #topics: Topics;
  readonly #compression: Compression;
  readonly #patienceMs: number;
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
    this.#patienceMs = options.timeoutMs / 2;
    this.#sequences = new library.NumericMap();
  }

  get usable(): boolean {
    return !this.#spoiled && !this.#client.destroyed;
  }

  /** Gives up the call that it serves. */
  destroy(reason: Error): void {
    this.#client.destroy(reason);
  }

  /** Settles every item. */
  async send(items: readonly Item[], signal: AbortSignal): Promise<void> {
    const patience = new Patience(this.#patienceMs, signal);
    let runs: readonly Run[];
    try {
      this.#identity ??= await this.#identify(patience);
      runs = await this.#divide(items);
    } catch (error) {
      const outcome = failureOutcome(error);
      for (const item of items) item.settle(outcome);
      return;
    }
    await this.#sendRuns(runs, patience);
  }

  /** A broker that has just started has no ids to give for a moment. */
  async #identify(patience: Patience): Promise<Identity> {
    for (;;) {
      try {
        return await this.#client.producerId();
      } catch (error) {
        const code = brokerCode(error);
        if (code === undefined || !verdicts[code]?.soon || !(await patience.wait())) throw error;
      }
    }
  }

  /** By topic and partition, in their order. */
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

  /** Round by round: the first part of every partition, each broker's in one request. */
  async #sendRuns(runs: readonly Run[], patience: Patience): Promise<void> {
    for (;;) {
      const open = runs.filter(({ first }) => first !== undefined);
      if (open.length === 0) return;
      const rounds = byLeader(open).map(async (group) => this.#sendRound(fitting(group)));
      const doubts = (await Promise.all(rounds)).flat();
      if (doubts.length === 0) continue;
      if (!this.#client.destroyed && (await patience.wait()))
        await this.#findLeaders(doubts.map(({ run }) => run));
      else for (const { run, outcome } of doubts) this.#giveUp(run, outcome);
    }
  }

  /** Runs of one leader. */
  async #sendRound(runs: readonly Run[]): Promise<Doubt[]> {
    let response: ProduceResponse;
    try {
      const connection = await this.#connect(runs[0]?.leader);
      for (const { first } of runs) if (first !== undefined) first.sent = true;
      response = await this.#client.produce(connection, runs.flatMap(recordsOf), {
        compression: this.#compression,
        sequences: this.#sequences,
        ...this.#identity,
      });
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

  /** What a broker said of the first part of a run. */
  #take(run: Run, answer: PartitionAnswer = noAnswer): Doubt[] {
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
    if (verdicts[errorCode]?.stale) return [{ run, outcome }];
    if (outcome.kind === 'reject')
      run.refuse(outcome, new Set(recordErrors.map(({ batchIndex }) => batchIndex)));
    else this.#giveUp(run, outcome);
    return [];
  }

  /** Whether its first part has arrived is not known, so neither is the number of the next one. */
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
      // nobody answers: the next round finds that out too, and knows what to do
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
