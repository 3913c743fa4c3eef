// The relay: claims, dispatches and settles for every destination of its configuration, and keeps house.
// Any number of relays share one database with no other coordinator. This file opens the parts, in the order in which
// they need each other, and stops them, each within what is left of the deadline.

import { randomUUID } from 'node:crypto';
import os from 'node:os';

import { Database } from '../database/connection.js';
import { signOff, syncDefinitions } from '../database/definitions.js';
import { nextDueMs } from '../database/doorbells.js';
import { refuseOutdatedSchema } from '../database/versions.js';
import { syncWatches } from '../database/watches.js';
import { errorText } from '../errors.js';
import type { RelayTooOldError } from '../errors.js';
import type { Emit } from '../telemetry/events.js';
import { version } from '../version.js';
import { alertTellerOf } from './alert-teller.js';
import type { AlertTeller } from './alert-teller.js';
import { Chores } from './chores.js';
import { drainReport, noneDrained } from './drains.js';
import type { DrainLimits, DrainReport } from './drains.js';
import { endpointPipelinesOf } from './endpoint-pipelines.js';
import type { EndpointPipelines } from './endpoint-pipelines.js';
import { Heartbeat } from './heartbeat.js';
import { LeaseKeeper } from './lease-keeper.js';
import { maintainPartitions } from './maintenance.js';
import { Pipelines } from './pipelines.js';
import { Refusal } from './refusal.js';
import { Reports } from './reports.js';
import { definitionsOf, fingerprintOf, workConnections } from './setup.js';
import type { RelaySetup } from './setup.js';
import type { StreamReader } from './stream-reader.js';
import { openStreams } from './streams.js';
import { within } from './within.js';

const catchUpPollMs = 20;
/** At a stop, for saying goodbye when the deadline was used up. */
const farewellMs = 1000;

export class Relay {
  readonly id = randomUUID();
  readonly name: string;
  /** Resolves when it has stopped: with why, if it was not told to. */
  readonly ended: Promise<RelayTooOldError | undefined>;
  readonly #setup: RelaySetup;
  readonly #reports: Reports;
  readonly #emit: Emit;
  readonly #work: Database;
  /** Leases are extended and heartbeats sent even while every connection for work is busy. */
  readonly #control: Database;
  readonly #pipelines: Pipelines;
  readonly #heartbeat: Heartbeat;
  readonly #refusal: Refusal;
  readonly #leases: LeaseKeeper;
  #endpoints: EndpointPipelines | undefined;
  #streams: StreamReader[] = [];
  #alerts: AlertTeller | undefined;
  #chores: Chores | undefined;
  #stopped: Promise<void> | undefined;
  #end: () => void = () => undefined;

  constructor(setup: RelaySetup) {
    this.#setup = setup;
    this.ended = new Promise((resolve) => (this.#end = () => resolve(this.refusal)));
    this.name = setup.relay.name ?? `${os.hostname()}:${process.pid}`;
    this.#reports = new Reports({
      onEvent: setup.onEvent,
      pipelines: () => this.#pipelines.all,
      // for others to see at once
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
    });
    this.#pipelines = new Pipelines({
      setup,
      relayId: this.id,
      work: this.#work,
      control: this.#control,
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
        configuration: fingerprintOf(setup),
        destinations: Object.keys(setup.destinations),
      },
      pipelines: this.#pipelines.all,
      problems: () => this.#endpoints?.problems ?? [],
      register: (pipelines) => this.#pipelines.register(pipelines),
      emit,
    });
    this.#refusal = new Refusal({
      relay: this.name,
      emit,
      isOpen: () => this.#isOpen,
      isStopping: () => this.#stopped !== undefined,
      stop: () => this.stop(),
    });
  }

  /** Set as soon as the schema has refused it while it ran: it stops by itself then. */
  get refusal(): RelayTooOldError | undefined {
    return this.#refusal.error;
  }

  async start(): Promise<void> {
    try {
      await this.#start();
    } catch (error) {
      await this.stop();
      throw error;
    }
  }

  async #start(): Promise<void> {
    await this.#open(null);
    if (this.#setup.relay.listen)
      await this.#pipelines.listen(() => void this.#lookForEndpoints().catch(() => {}));
    await this.#pipelines.register();
    this.#streams = await openStreams(this.#setup, {
      work: this.#work,
      control: this.#control,
      relay: this,
      emit: this.#emit,
    });
    this.#refuseStopped();
    this.#pipelines.start();
    await this.#lookForEndpoints();
    this.#refuseStopped();
    for (const stream of this.#streams) await stream.start();
    this.#refuseStopped();
    this.#chores?.start();
    this.#emit({
      name: 'relay_started',
      relay: this.name,
      destinations: Object.keys(this.#setup.destinations),
    });
  }

  /** A stop that came while it started has looked for what runs already: nothing more may begin. */
  #refuseStopped(): void {
    this.#refusal.throwIfRefused();
    if (this.#stopped !== undefined) throw new Error('the relay was stopped while it started');
  }

  /** One shot: delivers what is due and ends. `finished` says whether the queue was empty at the end. */
  async drain(limits: DrainLimits): Promise<DrainReport> {
    try {
      await this.#open({ maxMessages: limits.maxMessages });
    } catch (error) {
      await this.stop();
      throw error;
    }
    const pipelines = this.#pipelines.all;
    this.#pipelines.start();
    await this.#endpoints?.look({ dueOnly: true });
    this.#chores?.start();
    const ended = Promise.all(pipelines.map((pipeline) => pipeline.ended()));
    await within(performance.now() + limits.maxMs, ended);
    try {
      if (limits.maintain && this.refusal === undefined) await this.#chores?.maintain();
      if (this.refusal === undefined) await this.#checkAlerts();
    } finally {
      await this.stop();
    }
    this.#refusal.throwIfRefused();
    const finished = pipelines.every((pipeline) => pipeline.emptied);
    return drainReport(this.#reports.drained, noneDrained, finished);
  }

  /** A drain that did its work has not failed because nobody could be told. */
  async #checkAlerts(): Promise<void> {
    try {
      await this.#alerts?.check();
    } catch (error) {
      this.#emit({ name: 'trouble', what: 'alerts', error: errorText(error) });
    }
  }

  /** While it runs: waits until nothing is due and nothing is held, and says what was done meanwhile. */
  async catchUp(limits: { maxMs: number }): Promise<DrainReport> {
    const before = this.#reports.drained;
    const deadlineMs = performance.now() + limits.maxMs;
    this.#pipelines.nudge(() => true);
    let finished = false;
    while (!finished && this.#stopped === undefined && performance.now() < deadlineMs) {
      const due = await nextDueMs(this.#control);
      finished = this.#pipelines.all.every(
        ({ destinationId, leaseIds }) => (due.get(destinationId) ?? 1) > 0 && leaseIds.length === 0,
      );
      if (!finished) await new Promise((resolve) => setTimeout(resolve, catchUpPollMs));
    }
    return drainReport(this.#reports.drained, before, finished);
  }

  /** Finishes or gives back what is held, within the deadline. */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stop().finally(this.#end);
    await this.#stopped;
  }

  /** Set up as far as it gets before it works. */
  get #isOpen(): boolean {
    return this.#chores !== undefined;
  }

  async #open(drain: { maxMessages: number } | null): Promise<void> {
    const { destinations, watches, shard } = this.#setup;
    const who = `relay ${this.name}`;
    await refuseOutdatedSchema(this.#control);
    const ids = await syncDefinitions(this.#control, definitionsOf(this.#setup), who);
    await maintainPartitions(this.#control, this.#emit);
    if (watches) await syncWatches(this.#control, watches, who);
    this.#alerts = await alertTellerOf(this.#setup, this.#control, this.id, this.#emit);
    await this.#alerts?.open();
    await this.#beat();
    if (!shard) for (const destination of Object.values(destinations)) await destination.open?.();
    this.#pipelines.open(ids, drain);
    this.#endpoints = await endpointPipelinesOf(this.#setup, {
      database: this.#control,
      pipelines: this.#pipelines,
      emit: this.#emit,
    });
    this.#chores = new Chores({
      setup: this.#setup,
      relayId: this.id,
      database: this.#control,
      pipelines: this.#pipelines,
      leases: this.#leases,
      tally: this.#reports.tally,
      alerts: this.#alerts,
      beat: () => this.#beat(),
      lookForEndpoints: this.#endpoints && (() => this.#lookForEndpoints()),
      emit: this.#emit,
    });
  }

  async #lookForEndpoints(): Promise<void> {
    if (this.#endpoints === undefined) return;
    const before = this.#endpoints.problems.join();
    await this.#endpoints.look();
    await this.#pipelines.registerNew();
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
    const deadlineMs = performance.now() + this.#setup.relay.stopDeadlineMs;
    const noMoreEndpoints = this.#endpoints?.stop();
    await Promise.all(
      [...this.#pipelines.all, ...this.#streams].map((running) => running.stop(deadlineMs)),
    );
    const lastMs = Math.max(deadlineMs, performance.now() + farewellMs);
    if (noMoreEndpoints) await within(lastMs, noMoreEndpoints);
    this.#alerts?.stop();
    if (this.#chores) await within(lastMs, this.#chores.stop());
    if (this.#alerts) await within(lastMs, this.#alerts.close());
    await this.#giveBackUnknownLeases(lastMs);
    await within(lastMs, this.#pipelines.stopListening());
    await this.#closeDestinations(lastMs);
    if (this.#endpoints) await within(lastMs, this.#endpoints.close());
    if (this.#isOpen) {
      await within(lastMs, this.#reports.tally.tell(this.#control));
      await within(lastMs, signOff(this.#control, this.id));
    }
    await this.#control.close(Math.max(lastMs - performance.now(), 0));
    this.#emit({ name: 'relay_stopped', relay: this.name });
  }

  /** A claim that has not answered by now is cut off; it and those whose answer was lost may hold a lease. */
  async #giveBackUnknownLeases(lastMs: number): Promise<void> {
    await this.#work.close(Math.max(lastMs - performance.now(), 0) / 2);
    if (this.#isOpen) await within(lastMs, this.#leases.releaseUnknown());
  }

  /** Those of several shards are closed by whoever has opened them. */
  async #closeDestinations(lastMs: number): Promise<void> {
    if (this.#setup.shard) return;
    for (const [name, destination] of Object.entries(this.#setup.destinations)) {
      try {
        await within(lastMs, Promise.resolve(destination.close?.()));
      } catch (error) {
        this.#emit({ name: 'trouble', what: `close ${name}`, error: errorText(error) });
      }
    }
  }
}
