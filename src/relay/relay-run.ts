// One run of a relay, from start() or drain() to its stop. It claims, dispatches and settles for every destination
// of its configuration, and does the maintenance. Any number of relays share one database without a coordinator.
// This file starts the parts in the order in which they need each other, and stops each within the rest of the
// deadline.

import { randomUUID } from 'node:crypto';
import os from 'node:os';

import { Database } from '../database/connection.js';
import { signOff } from '../database/definitions.js';
import { nextDueMs } from '../database/wake-up.js';
import { StartupWait } from '../database/startup-wait.js';
import { countUnrouted } from '../features/unrouted/database.js';
import { refuseOutdatedSchema } from '../database/versions.js';
import type { RelayTooOldError } from '../core/errors.js';
import { troubleOf } from '../telemetry/events.js';
import type { Emit } from '../telemetry/events.js';
import { version } from '../core/version.js';
import { relayParts } from '../features/relay-parts.js';
import { Chores } from './upkeep/chores.js';
import { Declarations } from '../features/applications/declarations.js';
import { drainReport, noneDrained } from './drains.js';
import type { DrainReport, ResolvedDrainLimits } from './drains.js';
import { endpointPipelinesOf } from '../features/endpoints/pipelines.js';
import type { EndpointPipelines } from '../features/endpoints/pipelines.js';
import { Heartbeat } from './upkeep/heartbeat.js';
import { LeaseKeeper } from './delivery/lease-keeper.js';
import { maintainPartitions } from './upkeep/daily-maintenance.js';
import { Pipelines } from './delivery/pipelines.js';
import type { RelayPart } from './part.js';
import { Refusal } from './refusal.js';
import { Reports } from './reports.js';
import { fingerprintOf, workConnections } from './setup.js';
import type { RelaySetup } from './setup.js';
import type { StreamReader } from './log/stream-reader.js';
import { openStreams } from './log/streams.js';
import { WakeUp } from './wakeup/wake-up.js';
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
  readonly #reports: Reports;
  readonly #emit: Emit;
  readonly #work: Database;
  /** Separate connections, so leases are extended and heartbeats sent even while every connection for work is busy. */
  readonly #control: Database;
  readonly #wakeUp: WakeUp;
  readonly #pipelines: Pipelines;
  readonly #heartbeat: Heartbeat;
  readonly #declarations: Declarations;
  readonly #refusal: Refusal;
  readonly #leases: LeaseKeeper;
  #endpoints: EndpointPipelines | undefined;
  #streams: StreamReader[] = [];
  #parts: readonly RelayPart[] = [];
  #chores: Chores | undefined;
  #begun = false;
  #declared = false;
  readonly #stopping = new AbortController();
  #stopped: Promise<void> | undefined;
  #end: () => void = () => undefined;

  constructor(setup: RelaySetup, beforeStopped: Promise<void> = Promise.resolve()) {
    this.#setup = setup;
    this.#beforeStopped = beforeStopped;
    this.ended = new Promise((resolve) => (this.#end = () => resolve(this.refusal)));
    this.name = setup.relay.name ?? `${os.hostname()}:${process.pid}`;
    this.#reports = new Reports({
      onEvent: setup.onEvent,
      pipelines: () => this.#pipelines.all,
      // a heartbeat, so other relays see the change at once
      onBreaker: () => void this.#beat().catch(() => {}),
    });
    const { emit } = this.#reports;
    this.#emit = emit;
    this.#work = new Database(setup.database, {
      connections: workConnections(setup),
      applicationName: 'waybill relay',
    });
    this.#control = new Database(setup.database, {
      connections: 2,
      applicationName: 'waybill relay control',
      beside: this.#work,
    });
    this.#wakeUp = new WakeUp({
      work: this.#work,
      control: this.#control,
      relayId: this.id,
      relay: setup.relay,
      emit,
    });
    this.#pipelines = new Pipelines({
      setup,
      relayId: this.id,
      work: this.#work,
      control: this.#control,
      wakeUp: this.#wakeUp,
      emit,
      serving: () => this.#heartbeat.serving,
      onUnknownLease: (leaseId) => this.#leases.unknown(leaseId),
    });
    this.#leases = new LeaseKeeper(this.#control, this.id, this.#pipelines.all, emit);
    this.#heartbeat = new Heartbeat({
      database: this.#control,
      identity: {
        id: this.id,
        name: this.name,
        version,
        application: setup.application,
        configuration: fingerprintOf(setup),
        destinations: Object.keys(setup.destinations),
      },
      pipelines: this.#pipelines.all,
      problems: () => [
        ...(this.#endpoints?.problems ?? []),
        ...(this.#declarations.problem === null ? [] : [this.#declarations.problem]),
      ],
      wakeUp: this.#wakeUp,
      emit,
    });
    this.#declarations = new Declarations(setup, this.#control, this);
    this.#refusal = new Refusal({
      relay: this.name,
      emit,
      isOpen: () => this.#isOpen,
      isStopping: () => this.#stopped !== undefined,
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

  async start(): Promise<void> {
    this.#begun = true;
    try {
      await this.#start();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  async #start(): Promise<void> {
    await this.#beforeStopped;
    this.#refuseStopped();
    // a shard does not wait here: the relay of all shards tries it again, while the others run
    const wait = this.#startupWait(this.#setup.shard ? 0 : this.#setup.relay.startupWaitMs);
    await this.#open(null, wait);
    if (this.#setup.relay.listen)
      await this.#wakeUp.listen(() => void this.#lookForEndpoints().catch(() => {}));
    await this.#step(wait, () => this.#wakeUp.registerAll());
    this.#streams = openStreams(this.#setup, {
      work: this.#work,
      control: this.#control,
      relay: this,
      emit: this.#emit,
    });
    this.#pipelines.start();
    await this.#step(wait, () => this.#lookForEndpoints());
    for (const stream of this.#streams) await this.#step(wait, () => stream.start());
    this.#chores?.start();
    this.#emit({
      name: 'relay_started',
      relay: this.name,
      destinations: Object.keys(this.#setup.destinations),
    });
  }

  #startupWait(limitMs: number): StartupWait {
    return new StartupWait(this.#control, {
      limitMs,
      signal: this.#stopping.signal,
      emit: this.#emit,
    });
  }

  /** A repeatable step of the start; a stop or a refusal during it ends the start. */
  async #step<T>(wait: StartupWait, step: () => Promise<T>): Promise<T> {
    try {
      return await wait.run(step);
    } finally {
      this.#refuseStopped();
    }
  }

  /** A stop during the start has already stopped the running parts: no other part may start. */
  #refuseStopped(): void {
    this.#refusal.throwIfRefused();
    if (this.#stopped !== undefined) throw new Error('the relay was stopped while it started');
  }

  /** Delivers what is due and ends. `finished` says whether the queue was empty at the end. */
  async drain(limits: ResolvedDrainLimits): Promise<DrainReport> {
    this.#begun = true;
    try {
      await this.#beforeStopped;
      this.#refuseStopped();
      await this.#open({ maxMessages: limits.maxMessages }, this.#startupWait(0));
    } catch (error) {
      await this.stop();
      throw error;
    }
    const deadlineMs = performance.now() + limits.maxMs;
    // a drain may be over before the interval task looks
    await this.#chores?.correctMisdated();
    const pipelines = this.#pipelines.all;
    this.#pipelines.start();
    await this.#endpoints?.look({ dueOnly: true });
    this.#chores?.start();
    const ended = Promise.all(pipelines.map((pipeline) => pipeline.ended()));
    await within(deadlineMs, ended);
    let unrouted = 0;
    try {
      if (limits.maintain && this.refusal === undefined) await this.#chores?.maintain();
      if (this.refusal === undefined) await this.#chores?.endDrain();
      if (this.refusal === undefined && !this.isStopping)
        unrouted = await countUnrouted(this.#control);
    } finally {
      await this.stop();
    }
    this.#refusal.throwIfRefused();
    const finished = pipelines.every((pipeline) => pipeline.emptied);
    return drainReport(this.#reports.drained, noneDrained, { finished, unrouted });
  }

  /** Waits, on a running relay, until no delivery is due or in flight; returns what was done meanwhile. */
  async catchUp(maxMs: number): Promise<DrainReport> {
    const before = this.#reports.drained;
    const deadlineMs = performance.now() + maxMs;
    this.#wakeUp.wakeAll();
    let finished = false;
    while (!finished && this.#stopped === undefined && performance.now() < deadlineMs) {
      const due = await nextDueMs(this.#control);
      finished =
        this.#isOpen &&
        this.#pipelines.all.every(
          ({ destinationId, leaseIds }) =>
            (due.get(destinationId) ?? 1) > 0 && leaseIds.length === 0,
        );
      if (!finished) await new Promise((resolve) => setTimeout(resolve, catchUpPollMs));
    }
    const unrouted = this.isStopping ? 0 : await countUnrouted(this.#control);
    return drainReport(this.#reports.drained, before, { finished, unrouted });
  }

  /** The relay calls this every minute while it runs; see Declarations. */
  async tendDefinitions(): Promise<void> {
    const before = this.#declarations.problem;
    await this.#declarations.tend();
    const { problem } = this.#declarations;
    if (problem === before) return;
    if (problem !== null) this.#emit({ name: 'trouble', what: 'tend definitions', error: problem });
    // operators need not wait for the next heartbeat
    await this.#beat();
  }

  /** Finishes or releases the deliveries in hand, within the deadline. */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stop().finally(this.#end);
    await this.#stopped;
  }

  /** True when everything is set up and work can begin. */
  get #isOpen(): boolean {
    return this.#chores !== undefined;
  }

  async #open(drain: { maxMessages: number } | null, wait: StartupWait): Promise<void> {
    const { destinations, shard } = this.#setup;
    const step = <T>(work: () => Promise<T>): Promise<T> => this.#step(wait, work);
    await step(() => refuseOutdatedSchema(this.#control));
    this.#declared = true;
    // a start repeats the whole step
    const lockWaitMs = drain === null && !shard ? 0 : undefined;
    const ids = await step(() =>
      this.#declarations.declare(drain === null ? 'start' : 'drain', lockWaitMs),
    );
    await step(() => maintainPartitions(this.#control, this.#emit));
    await step(() => this.#declarations.declareWatches());
    this.#parts = await step(() =>
      relayParts({
        setup: this.#setup,
        relayId: this.id,
        database: this.#control,
        emit: this.#emit,
      }),
    );
    for (const part of this.#parts) await part.open?.();
    await step(() => this.#beat());
    if (!shard) for (const destination of Object.values(destinations)) await destination.open?.();
    this.#pipelines.open(ids, drain);
    this.#endpoints = await step(() =>
      endpointPipelinesOf(this.#setup, {
        database: this.#control,
        pipelines: this.#pipelines,
        emit: this.#emit,
      }),
    );
    this.#chores = new Chores({
      setup: this.#setup,
      relayId: this.id,
      relayName: this.name,
      database: this.#control,
      wakeUp: this.#wakeUp,
      leases: this.#leases,
      counters: this.#reports.counters,
      parts: this.#parts,
      beat: () => this.#beat(),
      // a drain does not run for long enough to know which definitions left the configuration
      tendDefinitions: drain === null ? () => this.tendDefinitions() : undefined,
      lookForEndpoints: this.#endpoints && (() => this.#lookForEndpoints()),
      emit: this.#emit,
    });
  }

  async #lookForEndpoints(): Promise<void> {
    if (this.#endpoints === undefined) return;
    const before = this.#endpoints.problems.join();
    await this.#endpoints.look();
    await this.#wakeUp.registerNew();
    // operators need not wait for the next heartbeat
    if (this.#endpoints.problems.join() !== before) await this.#beat();
  }

  async #beat(): Promise<void> {
    try {
      await this.#heartbeat.beat();
    } catch (error) {
      this.#refusal.take(error);
    }
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    await this.#beforeStopped;
    const deadlineMs = performance.now() + this.#setup.relay.stopDeadlineMs;
    const noMoreEndpoints = this.#endpoints?.stop();
    await Promise.all(
      [...this.#pipelines.all, ...this.#streams].map((running) => running.stop(deadlineMs)),
    );
    const lastMs = Math.max(deadlineMs, performance.now() + farewellMs);
    if (noMoreEndpoints) await within(lastMs, noMoreEndpoints);
    for (const part of this.#parts) part.stop?.();
    if (this.#chores) await within(lastMs, this.#chores.stop());
    for (const part of this.#parts) if (part.close) await within(lastMs, part.close());
    await this.#giveBackUnknownLeases(lastMs);
    await within(lastMs, this.#wakeUp.stopListening());
    await this.#closeDestinations(lastMs);
    if (this.#endpoints) await within(lastMs, this.#endpoints.close());
    if (this.#isOpen) await within(lastMs, this.#reports.counters.tell(this.#control));
    if (this.#declared) await within(lastMs, signOff(this.#control, this.id));
    await this.#control.close(Math.max(lastMs - performance.now(), 0));
    this.#emit({ name: 'relay_stopped', relay: this.name });
  }

  /** Aborts claims that have not answered; these, and claims whose answer was lost, may hold a lease. */
  async #giveBackUnknownLeases(lastMs: number): Promise<void> {
    await this.#work.close(Math.max(lastMs - performance.now(), 0) / 2);
    if (this.#isOpen) await within(lastMs, this.#leases.releaseUnknown());
  }

  /** Destinations of several shards are closed by the relay of all shards, which opened them. */
  async #closeDestinations(lastMs: number): Promise<void> {
    if (this.#setup.shard) return;
    for (const [name, destination] of Object.entries(this.#setup.destinations)) {
      try {
        await within(lastMs, Promise.resolve(destination.close?.()));
      } catch (error) {
        this.#emit(troubleOf(`close ${name}`, error));
      }
    }
  }
}
