// One run of a relay, from start() or drain() to its stop. Any number of relays share one database without a
// coordinator. The parts that do the work are in run-parts.ts.

import { randomUUID } from 'node:crypto';
import os from 'node:os';

import { delay } from '../core/delay.js';
import { nextDue } from '../database/wake-up.js';
import { StartupWait } from '../database/startup-wait.js';
import { countUnrouted } from '../features/unrouted/database.js';
import { troubleOf } from '../telemetry/events.js';
import type { Emit } from '../telemetry/events.js';
import type { RelayTooOldError } from '../core/errors.js';
import { addDrained, drainReport, noneDrained } from './drains.js';
import type { DrainReport, ResolvedDrainLimits } from './drains.js';
import { Refusal } from './refusal.js';
import { RunParts } from './run-parts.js';
import type { Step } from './run-parts.js';
import type { RelaySetup } from './setup.js';
import { allTransactionsEnded, nextWorkMs } from './sleep/next-work.js';
import { within } from './within.js';

const catchUpPollMs = 20;
/** Extra time at a stop to sign off after the deadline. */
const farewellMs = 1000;

export class RelayRun {
  readonly id = randomUUID();
  readonly name: string;
  /** Resolves when the run has stopped, with the reason if it stopped by itself. */
  readonly ended: Promise<RelayTooOldError | undefined>;
  readonly #setup: RelaySetup;
  /** Resolves when the previous run, which uses the same destinations, has stopped. */
  readonly #beforeStopped: Promise<void>;
  readonly #parts: RunParts;
  readonly #refusal: Refusal;
  #begun = false;
  #awakeSinceMs = 0;
  readonly #stopping = new AbortController();
  #stopped: Promise<void> | undefined;
  #end: () => void = () => undefined;

  constructor(setup: RelaySetup, beforeStopped: Promise<void> = Promise.resolve()) {
    this.#setup = setup;
    this.#beforeStopped = beforeStopped;
    this.ended = new Promise((resolve) => (this.#end = () => resolve(this.refusal)));
    this.name = setup.relay.name ?? `${os.hostname()}:${process.pid}`;
    this.#parts = new RunParts({
      setup,
      relay: { id: this.id, name: this.name },
      onHeartbeatFailed: (error) => this.#refusal.take(error),
    });
    this.#refusal = new Refusal({
      relay: this.name,
      emit: this.#parts.reports.emit,
      isOpen: () => this.#isOpen,
      isStopping: () => this.isStopping,
      stop: () => this.stop(),
    });
  }

  /** Set when the schema refuses the running relay, which then stops by itself. */
  get refusal(): RelayTooOldError | undefined {
    return this.#refusal.error;
  }

  /** The run was started, drained or stopped: the next start or drain needs a new one. */
  get isUsed(): boolean {
    return this.#begun || this.isStopping;
  }

  get isStopping(): boolean {
    return this.#stopped !== undefined;
  }

  /** Works until it is stopped. Resolves when it has begun. */
  async start(): Promise<void> {
    const { destinations, relay, shard } = this.#setup;
    await this.#begin(async () => {
      // a shard does not wait here: the relay of all shards tries it again, while the others run
      const step = this.#stepsWithin(shard ? 0 : relay.startupWaitMs);
      await this.#parts.open(null, step);
      await this.#parts.start(step);
      const names = Object.keys(destinations);
      this.#parts.reports.emit({ name: 'relay_started', relay: this.name, destinations: names });
      this.stayAwake();
    });
  }

  /** Delivers what is due and ends. `finished` says whether the queue was empty, and all streams were read. */
  async drain(limits: ResolvedDrainLimits): Promise<DrainReport> {
    const { maxMessages } = limits;
    await this.#begin(async () => {
      const step = this.#stepsWithin(0);
      await this.#parts.open({ maxMessages }, step);
      await this.#parts.startStreams({ maxMessages }, step);
    });
    const deadlineMs = performance.now() + limits.maxMs;
    const { chores, endpoints, control, reports, streams } = this.#parts;
    await chores?.beginDrain();
    const pipelines = this.#parts.pipelines.all;
    this.#parts.pipelines.start();
    await endpoints?.openDue();
    chores?.start();
    const ended = Promise.all([...pipelines, ...streams].map((part) => part.ended()));
    await within(deadlineMs, ended);
    let unrouted = 0;
    try {
      if (limits.maintain && this.refusal === undefined) await chores?.maintain();
      if (this.refusal === undefined) await chores?.endDrain();
      if (this.refusal === undefined && !this.isStopping) unrouted = await countUnrouted(control);
    } finally {
      await this.stop();
    }
    this.#refusal.throwIfRefused();
    const finished =
      pipelines.every((pipeline) => pipeline.emptied) &&
      streams.every(({ drained }) => drained.finished);
    const heldCursors = streams
      .filter(({ drained }) => drained.heldBy !== null)
      .map(({ cursor }) => cursor);
    const { drained } = reports;
    for (const { counts } of streams) addDrained(drained, counts);
    return drainReport(drained, noneDrained, { finished, unrouted, heldCursors });
  }

  /** Waits, on a running relay, until no delivery is due or in flight; returns what was done meanwhile. */
  async catchUp(maxMs: number): Promise<DrainReport> {
    const { control, endpoints, pipelines, reports, wakeUp } = this.#parts;
    const before = reports.drained;
    const deadlineMs = performance.now() + maxMs;
    wakeUp.wakeAll();
    let finished = false;
    while (!finished && !this.isStopping && performance.now() < deadlineMs) {
      const due = (await nextDue(control)).filter(({ ms }) => ms <= 0);
      const served = new Set(pipelines.all.map(({ destinationId }) => destinationId));
      finished =
        this.#isOpen &&
        pipelines.all.every(({ leaseIds }) => leaseIds.length === 0) &&
        !due.some(({ id, isEndpoint }) => served.has(id) || (isEndpoint && endpoints));
      if (!finished) await delay(catchUpPollMs);
    }
    const unrouted = this.isStopping ? 0 : await countUnrouted(control);
    return drainReport(reports.drained, before, { finished, unrouted });
  }

  get emit(): Emit {
    return this.#parts.reports.emit;
  }

  /** For how long nothing has been claimed, in flight or expected. */
  get quietMs(): number {
    let sinceMs = this.#awakeSinceMs;
    for (const { quietSinceMs } of this.#parts.pipelines.all)
      sinceMs = Math.max(sinceMs, quietSinceMs ?? Number.POSITIVE_INFINITY);
    return Math.max(performance.now() - sinceMs, 0);
  }

  /** There may be work soon. */
  stayAwake(): void {
    this.#awakeSinceMs = performance.now();
  }

  /** There may be work that was not notified. */
  look(): void {
    this.#parts.wakeUp.look();
  }

  /** Milliseconds until there is work, as far as the database knows; null if there is none. */
  async nextWorkMs(): Promise<number | null> {
    const { control, endpoints, pipelines } = this.#parts;
    const served = new Set(pipelines.all.map(({ destinationId }) => destinationId));
    return nextWorkMs(
      control,
      ({ id, isEndpoint }) => served.has(id) || (isEndpoint && endpoints !== undefined),
    );
  }

  /** Runs periodic tasks at once that a relay which is rarely awake would not come to. A failure is only reported. */
  async maintain(): Promise<void> {
    const { chores, reports } = this.#parts;
    await chores?.maintain().catch((error: unknown) => {
      reports.emit(troubleOf('maintain', error));
    });
    await chores?.endDrain();
  }

  /** False while a transaction of the server is open that has written something: the relay would stop and start again. */
  async mayFallAsleep(): Promise<boolean> {
    return allTransactionsEnded(this.#parts.control, { waitMs: 0 });
  }

  /**
   * Stops, and returns for how many milliseconds there is no work. 0: there may be some, so the next run has to start
   * at once. The last look comes after the sign-off, and after every transaction that saw this relay listen: later
   * producers know that no relay listens.
   */
  async fallAsleep(isNeeded: () => boolean): Promise<number> {
    let workMs = 0;
    const lastLook = async () => {
      try {
        if (!(await allTransactionsEnded(this.#parts.control, { isNeeded }))) return;
        workMs = Math.max((await this.nextWorkMs()) ?? Number.POSITIVE_INFINITY, 0);
      } catch {
        // the next run finds out what is wrong with the database
      }
    };
    this.#stopped ??= this.#stop(lastLook).finally(this.#end);
    await this.#stopped;
    return workMs;
  }

  /** The relay calls this every minute while it runs; see Declarations. */
  async tendDefinitions(): Promise<void> {
    await this.#parts.tendDefinitions();
  }

  /** Finishes or releases the deliveries in hand, within the deadline. */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stop().finally(this.#end);
    await this.#stopped;
  }

  async #stop(afterSignOff?: () => Promise<void>): Promise<void> {
    this.#stopping.abort();
    await this.#beforeStopped;
    const deadlineMs = performance.now() + this.#setup.relay.stopDeadlineMs;
    await this.#parts.close(deadlineMs, farewellMs, afterSignOff);
    if (afterSignOff === undefined)
      this.#parts.reports.emit({ name: 'relay_stopped', relay: this.name });
  }

  /** True when everything is set up and work can begin. */
  get #isOpen(): boolean {
    return this.#parts.chores !== undefined;
  }

  /** Opens what the run needs, after the previous run has stopped. A failure stops the run. */
  async #begin(open: () => Promise<void>): Promise<void> {
    this.#begun = true;
    try {
      await this.#beforeStopped;
      this.#refuseStopped();
      await open();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  /** Runs steps of the start, which wait for the database. A stop or a refusal during a step ends the start. */
  #stepsWithin(limitMs: number): Step {
    const wait = new StartupWait(this.#parts.control, {
      limitMs,
      signal: this.#stopping.signal,
      emit: this.#parts.reports.emit,
    });
    return async (step) => {
      try {
        return await wait.run(step);
      } finally {
        this.#refuseStopped();
      }
    };
  }

  /** A stop during the start has already stopped the running parts: no other part may start. */
  #refuseStopped(): void {
    this.#refusal.throwIfRefused();
    if (this.isStopping) throw new Error('the relay was stopped while it started');
  }
}
