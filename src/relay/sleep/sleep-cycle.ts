// Sleep cycle: a relay that closes all its connections while it has nothing to do, so that its database can sleep too.
// Each time awake is one run. It wakes when the next delivery is due or the next lease expires, when a producer or an
// operator wakes it, when this process enqueues, and at the next scheduled look, which finds what no producer woke it for.

import { delay } from '../../core/delay.js';
import { RelayTooOldError } from '../../core/errors.js';
import { addSleepingRelay, removeSleepingRelay } from '../../core/sleeping-relays.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import { drainReport, noneDrained } from '../drains.js';
import type { DrainReport } from '../drains.js';
import { RelayRun } from '../relay-run.js';
import type { RelaySetup } from '../setup.js';
import { Signal } from '../signal.js';
import { within } from '../within.js';
import type { ResolvedSleepOptions } from './options.js';
import { reopening } from './reopening.js';

/** How often an awake relay checks whether it is idle. This asks the database nothing. */
const checkMs = 1000;
const firstRetryMs = 1000;
const longestRetryMs = 60_000;

export class SleepCycle {
  /** For every run but the first. The first uses the destinations as given, and fails if one cannot be opened. */
  readonly #setup: RelaySetup;
  readonly #sleep: ResolvedSleepOptions;
  readonly #beforeStopped: Promise<void>;
  readonly #stopping = new AbortController();
  /** Raised to wake it, and at a stop. */
  readonly #woken = new Signal();
  readonly #listed: { schema: string; expectWork: () => void };
  /** Resolves when it has stopped, with the reason if it stopped by itself. */
  readonly ended: Promise<RelayTooOldError | undefined>;
  #end: (refusal: RelayTooOldError | undefined) => void = () => undefined;
  #run: RelayRun;
  #state: 'awake' | 'falling asleep' | 'asleep' | 'waking' = 'waking';
  #begun = false;
  #cycle: Promise<void> = Promise.resolve();
  #stopped: Promise<void> | undefined;
  #refusal: RelayTooOldError | undefined;
  /** Callers that wait until it is awake. */
  readonly #whenAwake = new Set<() => void>();

  constructor(setup: RelaySetup, sleep: ResolvedSleepOptions, beforeStopped: Promise<void>) {
    const emit: Emit = (event) => this.#run.emit(event);
    this.#setup = { ...setup, destinations: reopening(setup.destinations, emit) };
    this.#sleep = sleep;
    this.#beforeStopped = beforeStopped;
    this.#run = new RelayRun(setup, beforeStopped);
    this.ended = new Promise((resolve) => (this.#end = resolve));
    this.#listed = { schema: setup.database.schema, expectWork: () => this.expectWork() };
  }

  get id(): string {
    return this.#run.id;
  }

  get name(): string {
    return this.#run.name;
  }

  get refusal(): RelayTooOldError | undefined {
    return this.#refusal ?? this.#run.refusal;
  }

  get isUsed(): boolean {
    return this.#begun || this.isStopping;
  }

  get isStopping(): boolean {
    return this.#stopped !== undefined;
  }

  /** It has no connection and asks the database nothing. */
  get isAsleep(): boolean {
    return this.#state === 'asleep';
  }

  async start(): Promise<void> {
    this.#begun = true;
    try {
      await this.#run.start();
    } catch (error) {
      this.#stopped ??= this.#run.stop();
      this.#end(this.refusal);
      throw error;
    }
    if (this.isStopping) return;
    this.#becomeAwake();
    addSleepingRelay(this.#listed);
    this.#cycle = this.#repeat();
  }

  /** There is work: wakes it, or makes it look for work if it is awake. */
  wake(): void {
    if (this.#state === 'awake') this.#run.look();
    this.expectWork();
  }

  /** There may be work soon: wakes it, or keeps it awake. */
  expectWork(): void {
    if (this.#state === 'awake') this.#run.stayAwake();
    else this.#woken.raise();
  }

  /** The time until it is awake counts: a database that does not start ends this at its limit. */
  async catchUp(maxMs: number): Promise<DrainReport> {
    const deadlineMs = performance.now() + maxMs;
    this.wake();
    await this.#untilAwake(deadlineMs);
    if (this.#state !== 'awake' && !this.isStopping)
      return drainReport(noneDrained, noneDrained, { finished: false, unrouted: 0 });
    return this.#run.catchUp(Math.max(deadlineMs - performance.now(), 0));
  }

  async #untilAwake(deadlineMs: number): Promise<void> {
    if (this.#state === 'awake' || this.isStopping) return;
    let resolved: () => void = () => undefined;
    const awake = new Promise<void>((resolve) => (resolved = resolve));
    this.#whenAwake.add(resolved);
    await within(deadlineMs, awake);
    this.#whenAwake.delete(resolved);
  }

  async tendDefinitions(): Promise<void> {
    if (this.#state === 'awake') await this.#run.tendDefinitions();
  }

  async stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    await this.#stopped;
  }

  async #stop(): Promise<void> {
    removeSleepingRelay(this.#listed);
    const { isAsleep } = this;
    this.#stopping.abort();
    this.#woken.raise();
    await this.#beforeStopped;
    await this.#run.stop();
    await this.#cycle;
    // the last run has ended with a sleep
    if (isAsleep) this.#run.emit({ name: 'relay_stopped', relay: this.name });
    this.#endWaits();
    this.#end(this.refusal);
  }

  async #repeat(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      if (!(await this.#untilIdle())) break;
      const workMs = await this.#run.fallAsleep(() => signal.aborted || this.#woken.raised);
      if (signal.aborted || this.#run.refusal) break;
      if (workMs > 0) await this.#rest(workMs);
      if (signal.aborted || !(await this.#wakeUp())) break;
    }
    // the schema refuses it: it stops without a call of stop()
    if (!signal.aborted) {
      removeSleepingRelay(this.#listed);
      this.#stopped ??= this.#run.stop();
      this.#endWaits();
      this.#end(this.refusal);
    }
  }

  /** True when it begins to fall asleep: nothing to do for long, and no work due soon. False when the run has ended. */
  async #untilIdle(): Promise<boolean> {
    const { afterMs } = this.#sleep;
    const run = this.#run;
    const { signal } = this.#stopping;
    const hasEnded = () => signal.aborted || run.isStopping;
    let notBeforeMs = 0;
    for (;;) {
      await delay(Math.min(checkMs, afterMs), signal);
      if (hasEnded()) return false;
      if (run.quietMs < afterMs || performance.now() < notBeforeMs) continue;
      try {
        notBeforeMs = performance.now() + afterMs;
        if (!(await run.mayFallAsleep())) continue;
        const workMs = await run.nextWorkMs();
        notBeforeMs = performance.now() + Math.min(workMs ?? afterMs, afterMs);
        if (workMs !== null && workMs <= afterMs) continue;
        await run.maintain();
      } catch (error) {
        run.emit(troubleOf('fall asleep', error));
        notBeforeMs = performance.now() + afterMs;
        continue;
      }
      if (hasEnded()) return false;
      if (run.quietMs < afterMs) continue;
      // in the same turn as the check: from now on, a wake() is remembered
      this.#woken.reset();
      this.#state = 'falling asleep';
      return true;
    }
  }

  async #rest(workMs: number): Promise<void> {
    this.#state = 'asleep';
    const forMs = Math.round(Math.min(workMs, this.#sleep.lookEveryMs));
    this.#run.emit({ name: 'relay_asleep', relay: this.name, forMs });
    await this.#woken.wait(forMs);
    this.#state = 'waking';
  }

  /** Starts the next run. The database may need a while to start; other errors are tried again too. */
  async #wakeUp(): Promise<boolean> {
    const { signal } = this.#stopping;
    this.#state = 'waking';
    for (
      let retryMs = firstRetryMs;
      !signal.aborted;
      retryMs = Math.min(retryMs * 2, longestRetryMs)
    ) {
      try {
        this.#run = new RelayRun(this.#setup);
        await this.#run.start();
        this.#becomeAwake();
        return true;
      } catch (error) {
        if (signal.aborted) return false;
        this.#run.emit(troubleOf('wake up', error));
        if (error instanceof RelayTooOldError) {
          this.#refusal = error;
          return false;
        }
        await delay(retryMs, signal);
      }
    }
    return false;
  }

  #becomeAwake(): void {
    this.#state = 'awake';
    this.#endWaits();
  }

  /** It is awake, or never will be. */
  #endWaits(): void {
    for (const resolve of this.#whenAwake) resolve();
    this.#whenAwake.clear();
  }
}
