// The relay, as an application uses it. Each start or drain is a new run with its own connections, so an application
// can call both any number of times.

import { RelayBusyError, RelayNotStartedError } from '../core/errors.js';
import type { RelayTooOldError } from '../core/errors.js';
import { resolveDrainLimits } from './drains.js';
import type { DrainLimits, DrainReport } from './drains.js';
import { RelayRun } from './relay-run.js';
import type { RelaySetup } from './setup.js';
import { SleepCycle } from './sleep/sleep-cycle.js';

export class Relay {
  readonly #setup: RelaySetup;
  #run: RelayRun | SleepCycle;

  constructor(setup: RelaySetup) {
    this.#setup = setup;
    this.#run = new RelayRun(setup);
  }

  /** A new id for each run. */
  get id(): string {
    return this.#run.id;
  }

  get name(): string {
    return this.#run.name;
  }

  /** Resolves when this run has stopped, with the reason if it stopped by itself. */
  get ended(): Promise<RelayTooOldError | undefined> {
    return this.#run.ended;
  }

  /** Set when the schema refuses the running relay, which then stops by itself. */
  get refusal(): RelayTooOldError | undefined {
    return this.#run.refusal;
  }

  /** Works until it is stopped. Resolves when it has begun; it may be started again after a stop. */
  async start(): Promise<void> {
    const { sleep } = this.#setup.relay;
    const run =
      sleep === undefined
        ? this.#nextRun('start', (before) => new RelayRun(this.#setup, before))
        : this.#nextRun('start', (before) => new SleepCycle(this.#setup, sleep, before));
    await run.start();
  }

  /**
   * Delivers what is due, reads the streams, and ends; it may be called again. `finished` says whether the queue was
   * empty and the streams were read, `unrouted` how many messages have no route.
   */
  async drain(limits: DrainLimits = {}): Promise<DrainReport> {
    const checked = resolveDrainLimits('drain', limits);
    return this.#nextRun('drain', (before) => new RelayRun(this.#setup, before)).drain(checked);
  }

  /**
   * Waits, on a running relay, until no delivery is due or in flight; returns what was done meanwhile. For tests, and
   * for work that must be delivered before something else happens. `maxMs` is 50,000 by default.
   */
  async catchUp(limits: Pick<DrainLimits, 'maxMs'> = {}): Promise<DrainReport> {
    const { maxMs } = resolveDrainLimits('catchUp', limits);
    if (!this.#run.isUsed) throw new RelayNotStartedError('catchUp');
    return this.#run.catchUp(maxMs);
  }

  /** The relay calls this every minute while it runs; see Declarations. */
  async tendDefinitions(): Promise<void> {
    await this.#run.tendDefinitions();
  }

  /** Finishes or releases the deliveries in hand, within the deadline. */
  async stop(): Promise<void> {
    await this.#run.stop();
  }

  /** With the option `sleep`: it has no connection, because it has nothing to do. */
  get isAsleep(): boolean {
    return this.#run instanceof SleepCycle && this.#run.isAsleep;
  }

  /** Wakes a relay that is asleep, or makes it look for work if it is awake. It does not wait for that. */
  wake(): void {
    if (this.#run instanceof SleepCycle) this.#run.wake();
    else if (this.#run.isUsed && !this.#run.isStopping) this.#run.look();
  }

  /** The new run exists before the previous one has stopped, so a stop() right after start() reaches it. */
  #nextRun<Run extends RelayRun | SleepCycle>(
    what: string,
    make: (beforeStopped: Promise<void>) => Run,
  ): Run {
    const before = this.#run;
    if (before.isUsed && !before.isStopping) throw new RelayBusyError(what);
    const run = make(before.isUsed ? before.stop() : Promise.resolve());
    this.#run = run;
    return run;
  }
}
