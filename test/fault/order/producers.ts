// The producer processes: a pool that serves all seeds, each process with one producer of one seed at a time. A process
// that killed itself is replaced, and another one continues. What it was about to commit counts as unknown until its
// backend has gone; then the database tells whether it was committed, all or nothing.

import path from 'node:path';

import { Child } from '../crash/child-process.js';
import { waitFor } from '../../support/wait.js';
import type { Plan } from './plan.js';
import type { Job, Produced, ProducerSaid } from './producer.js';
import type { World } from './world.js';

export type ProducerPoolOptions = {
  /** The checkout whose Waybill they use; without it, this one. */
  root?: string | undefined;
  mostProcesses?: number | undefined;
};

export type ProducerLog = {
  produced: Produced[];
  refusals: string[];
  deaths: number;
  /** Deaths during a transaction that was committed. */
  commitsHeard: number;
};
type Work = { log: ProducerLog; unknown: Produced[]; begun: number; done: () => void };

class ProducerProcess {
  readonly #child: Child<ProducerSaid>;
  readonly ready: Promise<void>;
  backend = 0;
  #work: Work | undefined;

  constructor(options: { databaseUrl: string; root: string | undefined }, logFile: string) {
    let isReady = () => {};
    this.ready = new Promise((resolve) => (isReady = resolve));
    this.#child = new Child('../order/producer.mjs', options, logFile, (said) => {
      if ('ready' in said) this.backend = said.backend;
      if ('ready' in said) isReady();
      else this.#note(said);
    });
    void this.#child.ended.then(() => {
      isReady();
      this.#work?.done();
    });
  }

  get isAlive(): boolean {
    return !this.#child.hasEnded;
  }

  lastWords(): string {
    return this.#child.lastWords();
  }

  /** Waits until the job is done, or the process has died. */
  async run(job: Job, log: ProducerLog): Promise<Omit<Work, 'done'>> {
    const work: Work = { log, unknown: [], begun: job.from, done: () => {} };
    await new Promise<void>((resolve) => {
      work.done = resolve;
      this.#work = work;
      this.#child.tell(job);
      if (!this.isAlive) resolve();
    });
    return work;
  }

  #note(said: ProducerSaid): void {
    const work = this.#work;
    if (work === undefined) return;
    if ('begun' in said) [work.begun, work.unknown] = [said.begun, said.unknown];
    else if ('ended' in said) {
      work.log.produced.push(...said.ended);
      work.unknown = [];
    } else if ('refusal' in said) work.log.refusals.push(said.refusal);
    else work.done();
  }

  async kill(): Promise<void> {
    await this.#child.kill();
  }
}

export class ProducerPool {
  readonly #databaseUrl: string;
  readonly #directory: string;
  readonly #root: string | undefined;
  readonly #mostProcesses: number;
  readonly #all = new Set<ProducerProcess>();
  readonly #free: ProducerProcess[] = [];
  readonly #waiting: (() => void)[] = [];
  #started = 0;

  constructor(
    databaseUrl: string,
    directory: string,
    { root, mostProcesses = 12 }: ProducerPoolOptions = {},
  ) {
    this.#databaseUrl = databaseUrl;
    this.#directory = directory;
    this.#root = root;
    this.#mostProcesses = mostProcesses;
  }

  /** All transactions of one producer, over as many processes as necessary. */
  async produce(world: World, plan: Plan, number: number): Promise<ProducerLog> {
    const log: ProducerLog = { produced: [], refusals: [], deaths: 0, commitsHeard: 0 };
    for (let from = 1; from <= plan.transactions;) {
      const producer = await this.#take();
      const { unknown, begun } = await producer.run({ plan, number, from }, log);
      const isAlive = producer.isAlive;
      this.#giveBack(producer);
      if (isAlive) break;
      const death = plan.deaths.find((d) => d.producer === number && d.transaction === begun);
      if (death === undefined)
        throw new Error(`a producer ended by itself:\n${producer.lastWords()}`);
      const known = await becameOf(world, producer.backend, unknown);
      const isCommitted = known.some(({ outcome }) => outcome === 'committed');
      if (death.moment === 'after commit' && !isCommitted && known.some((m) => !m.duplicate))
        log.refusals.push(`a COMMIT was answered, and its messages are gone: ${number}-${begun}`);
      log.produced.push(...known);
      log.deaths += 1;
      if (isCommitted) log.commitsHeard += 1;
      from = begun + 1;
    }
    return log;
  }

  async #take(): Promise<ProducerProcess> {
    while (this.#free.length === 0 && this.#all.size >= this.#mostProcesses)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    const free = this.#free.pop();
    if (free !== undefined) return free;
    for (let attempt = 1; ; attempt += 1) {
      const producer = await this.#start();
      if (producer.isAlive) return producer;
      this.#all.delete(producer);
      // its connection may have been cut when the clock jumped ahead
      if (attempt === 5) throw new Error(`a producer did not start:\n${producer.lastWords()}`);
    }
  }

  async #start(): Promise<ProducerProcess> {
    this.#started += 1;
    const logFile = path.join(this.#directory, `producer-${this.#started}.err`);
    const producer = new ProducerProcess(
      { databaseUrl: this.#databaseUrl, root: this.#root },
      logFile,
    );
    this.#all.add(producer);
    await producer.ready;
    return producer;
  }

  #giveBack(producer: ProducerProcess): void {
    if (producer.isAlive) this.#free.push(producer);
    else this.#all.delete(producer);
    this.#waiting.shift()?.();
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#all].map((producer) => producer.kill()));
  }
}

/** Whether the transaction was committed. If so, the time is unknown, so no upper bound applies. */
async function becameOf(world: World, backend: number, unknown: Produced[]): Promise<Produced[]> {
  const gone = () => world.query('SELECT FROM pg_stat_activity WHERE pid = $1', [backend]);
  await waitFor(async () => (await gone()).length === 0, {
    what: 'the backend of a dead producer to go',
  });
  const found = await world.query<{ id: string }>(
    'SELECT id FROM outbox.messages WHERE id = ANY ($1)',
    [unknown.map(({ id }) => id)],
  );
  const ids = new Set(found.map(({ id }) => id));
  const isCommitted = unknown.some(({ id, duplicate }) => !duplicate && ids.has(id));
  return unknown.map((message) => ({
    ...message,
    outcome: isCommitted ? 'committed' : 'aborted',
    committedMs: Number.POSITIVE_INFINITY,
  }));
}
