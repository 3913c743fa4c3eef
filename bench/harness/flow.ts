// Flow: a producer and a worker of one contender, each in its own process, and the latency of every message between
// them: from the return of COMMIT in the producer to the start of the handler. If the handler starts before COMMIT
// returns, the latency is 0. The worker may also be a web server that a relay calls.

import { contenderModule } from './bench.js';
import type { Contender } from './bench.js';
import { runToEnd, startRelay, Worker } from './processes.js';
import { pause } from './rounds.js';

export type Load = {
  /** Messages a second. */
  rate: number;
  perTransaction: number;
  /** Every n-th transaction stays open for `heldMs` before it commits. */
  heldEvery: number;
  heldMs: number;
};

type Times = [n: number, ms: number][];

const arrivalTimeoutMs = 60_000;

export class Flow {
  readonly worker: Worker;
  settings: Record<string, unknown> = {};
  readonly #producer: Worker;
  readonly #commits = new Map<number, number>();
  readonly #starts = new Map<number, number>();

  private constructor(worker: Worker, producer: Worker) {
    this.worker = worker;
    this.#producer = producer;
  }

  /**
   * Installs the contender in an empty database and starts both sides; returns when messages arrive. `module` installs
   * the schema and enqueues. The worker of Waybill is always a relay with bench/waybill/handler.config.mjs.
   */
  static async open(
    name: Contender,
    url: string,
    variables: Record<string, string> = {},
    module: string = contenderModule[name],
  ): Promise<Flow> {
    const environment = { DATABASE_URL: url, BENCH_PROBE: 'latency', ...variables };
    await runToEnd('bench/processes/prepare.mjs', [module, '0', '0'], { DATABASE_URL: url });
    const worker =
      name === 'waybill'
        ? startRelay('handler.config.mjs', url, environment)
        : new Worker('bench/processes/worker.mjs', [module, 'latency'], environment);
    return Flow.between(worker, module, environment);
  }

  /** Starts a producer for a worker that reports its settings; returns when messages arrive. */
  static async between(
    worker: Worker,
    module: string,
    environment: Record<string, string>,
  ): Promise<Flow> {
    const producer = new Worker('bench/processes/producer.mjs', [module], environment);
    const flow = new Flow(worker, producer);
    try {
      ({ settings: flow.settings } = await worker.next<Pick<Flow, 'settings'>>('settings'));
      await producer.next('ready');
      flow.#begin({ rate: 100, perTransaction: 1, heldEvery: 1000, heldMs: 0 }, true);
      await worker.next('warm', arrivalTimeoutMs);
      await flow.#end();
      return flow;
    } catch (error) {
      await flow.close();
      throw error;
    }
  }

  /** How long `measure` warms up before it measures. */
  static warmUpSeconds(seconds: number): number {
    return Math.min(seconds, 2) / 2;
  }

  /** Runs a load for the given time, after a short warm-up at the same rate, and returns all latencies. */
  async measure(load: Load, seconds: number): Promise<number[]> {
    this.#begin(load, true);
    await pause(Flow.warmUpSeconds(seconds) * 1000);
    await this.#end();
    this.start(load);
    await pause(seconds * 1000);
    await this.#end();
    return this.takeAll();
  }

  start(load: Load): void {
    this.#begin(load, false);
  }

  async stop(): Promise<void> {
    await this.#end();
  }

  /** The latencies of all messages committed so far; waits until the last of them has arrived. */
  async takeAll(): Promise<number[]> {
    const deadlineMs = performance.now() + arrivalTimeoutMs;
    const latencies = await this.take();
    while (this.#commits.size > 0) {
      if (performance.now() > deadlineMs)
        throw new Error(`${this.#commits.size} messages never arrived`);
      await pause(20);
      latencies.push(...(await this.take()));
    }
    return latencies;
  }

  /** The latencies of all messages that were both committed and handled by now. */
  async take(): Promise<number[]> {
    const { commits } = await this.#producer.ask<{ commits: Times }>(
      { type: 'collect' },
      'committed',
    );
    const { starts } = await this.worker.ask<{ starts: Times }>({ type: 'collect' }, 'started');
    for (const [n, ms] of commits) this.#commits.set(n, ms);
    for (const [n, ms] of starts) if (!this.#starts.has(n)) this.#starts.set(n, ms);
    const latencies: number[] = [];
    for (const [n, committedMs] of this.#commits) {
      const startedMs = this.#starts.get(n);
      if (startedMs === undefined) continue;
      latencies.push(Math.max(startedMs - committedMs, 0));
      this.#commits.delete(n);
      this.#starts.delete(n);
    }
    return latencies;
  }

  async close(): Promise<void> {
    await this.#producer.stop();
    await this.worker.stop();
  }

  #begin(load: Load, warmUp: boolean): void {
    this.#producer.send({ type: 'start', ...load, warmUp });
  }

  async #end(): Promise<void> {
    await this.#producer.ask({ type: 'stop' }, 'stopped');
  }
}
