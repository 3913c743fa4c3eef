// The relay: claims, dispatches and settles for every destination of its configuration, and keeps house.
// Any number of relays share one database with no other coordinator.

import { randomUUID } from 'node:crypto';
import os from 'node:os';

import { syncAlertThresholds } from '../database/alerts.js';
import { reap } from '../database/claims.js';
import { Database } from '../database/connection.js';
import { signOff, syncDefinitions } from '../database/definitions.js';
import { clearDoorbells, nextDueMs } from '../database/doorbells.js';
import { syncEndpointSettings } from '../database/endpoints.js';
import type { EndpointRow } from '../database/endpoints.js';
import { refuseOutdatedSchema } from '../database/versions.js';
import { syncWatches } from '../database/watches.js';
import { errorText } from '../errors.js';
import type { RelayTooOldError } from '../errors.js';
import { secretKeys } from '../secret-keys.js';
import type { Emit, RelayEvent } from '../telemetry/events.js';
import { version } from '../version.js';
import { AlertTeller } from './alert-teller.js';
import { Doorbells } from './doorbells.js';
import { drainReport, noneDrained } from './drains.js';
import type { DrainLimits, DrainReport, Drained } from './drains.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';
import { EndpointPipelines } from './endpoint-pipelines.js';
import { headSinks } from './head-sinks.js';
import { Heartbeat } from './heartbeat.js';
import { LeaseKeeper } from './lease-keeper.js';
import { Lookout } from './lookout.js';
import { maintainPartitions, maintainRetention, maintainWatches } from './maintenance.js';
import { Pipeline, servesAll } from './pipeline.js';
import type { PipelineOptions } from './pipeline.js';
import { Refusal } from './refusal.js';
import { maintainSeals } from './sealing.js';
import { rolloutsOf, shadowName, shadowOf } from './shadows.js';
import { Slots } from './slots.js';
import { definitionsOf, fingerprintOf, workConnections } from './setup.js';
import type { RelaySetup } from './setup.js';
import type { StreamReader } from './stream-reader.js';
import { openStreams } from './streams.js';
import { Tally } from './tally.js';
import { Ticker } from './ticker.js';
import { WakeUp } from './wake-up.js';
import { within } from './within.js';

const catchUpPollMs = 20;
const heartbeatMs = 5000;
const statisticsMs = 5000;
const partitionsMs = 600_000;
const minuteMs = 60_000;
const sealMs = 10_000;
const endpointsMs = 1000;
/** At a stop, for saying goodbye when the deadline was used up. */
const farewellMs = 1000;

export class Relay {
  readonly id = randomUUID();
  readonly name: string;
  /** Resolves when it has stopped: with why, if it was not told to. */
  readonly ended: Promise<RelayTooOldError | undefined>;
  readonly #setup: RelaySetup;
  readonly #emit: Emit;
  readonly #work: Database;
  /** Leases are extended and heartbeats sent even while every connection for work is busy. */
  readonly #control: Database;
  readonly #heartbeat: Heartbeat;
  readonly #refusal: Refusal;
  readonly #doorbells: Doorbells;
  readonly #lookout: Lookout;
  /** Those of the configuration, and those of the endpoints, which come and go. */
  readonly #pipelines: Pipeline[] = [];
  #endpoints: EndpointPipelines | undefined;
  /** Opened just now: producers do not know yet that somebody listens for them. */
  readonly #unannounced: Pipeline[] = [];
  #streams: StreamReader[] = [];
  #tickers: Ticker[] = [];
  #leaseKeeper: LeaseKeeper | undefined;
  #alerts: AlertTeller | undefined;
  #wakeUp: WakeUp | undefined;
  readonly #tally = new Tally();
  #isOpen = false;
  #stopped: Promise<void> | undefined;
  #end: () => void = () => undefined;
  readonly #drained: Drained = { ...noneDrained };

  constructor(setup: RelaySetup) {
    this.#setup = setup;
    this.ended = new Promise((resolve) => (this.#end = () => resolve(this.refusal)));
    this.#emit = (event) => this.#report(event);
    this.name = setup.relay.name ?? `${os.hostname()}:${process.pid}`;
    this.#work = new Database(setup.database, {
      connections: workConnections(setup),
      applicationName: 'waybill relay',
    });
    this.#control = new Database(setup.database, {
      connections: 2,
      applicationName: 'waybill relay control',
    });
    const isListening = () => this.#wakeUp?.listening ?? false;
    this.#doorbells = new Doorbells(this.#work, this.id, isListening);
    this.#lookout = new Lookout({
      database: this.#work,
      fallbackPollMs: setup.relay.fallbackPollMs,
      maySilence: servesAll(setup.relay),
      isListening,
      emit: this.#emit,
    });
    this.#heartbeat = new Heartbeat({
      database: this.#control,
      identity: {
        id: this.id,
        name: this.name,
        version,
        configuration: fingerprintOf(setup),
        destinations: Object.keys(setup.destinations),
      },
      pipelines: this.#pipelines,
      problems: () => this.#endpoints?.problems ?? [],
      register: (pipelines) => this.#registerDoorbells(pipelines),
      emit: this.#emit,
    });
    this.#refusal = new Refusal({
      relay: this.name,
      emit: this.#emit,
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
    const { relay } = this.#setup;
    if (relay.listen) {
      this.#wakeUp = new WakeUp({
        database: this.#control,
        relayId: this.id,
        emit: this.#emit,
        onRing: (destinationId) => {
          if (destinationId === null) this.#lookout.look();
          else this.#nudge((pipeline) => pipeline.destinationId === destinationId);
        },
        onEndpoints: () => void this.#lookForEndpoints().catch(() => {}),
        onListening: () => void this.#registerDoorbells().catch(() => {}),
      });
      await this.#wakeUp.start();
    }
    await this.#registerDoorbells();
    this.#streams = await openStreams(this.#setup, {
      work: this.#work,
      control: this.#control,
      relay: this,
      emit: this.#emit,
    });
    this.#refuseStopped();
    for (const pipeline of this.#pipelines) pipeline.start();
    await this.#lookForEndpoints();
    this.#refuseStopped();
    for (const stream of this.#streams) await stream.start();
    this.#refuseStopped();
    for (const ticker of this.#tickers) ticker.start();
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
    for (const pipeline of this.#pipelines) pipeline.start();
    await this.#endpoints?.look((rows) => this.#withDueWork(rows));
    for (const ticker of this.#tickers) ticker.start();
    let timer: NodeJS.Timeout | undefined;
    const deadline = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, limits.maxMs);
    });
    const all = Promise.all(this.#pipelines.map((pipeline) => pipeline.ended()));
    await Promise.race([all, deadline]);
    clearTimeout(timer);
    try {
      const { retention } = this.#setup;
      if (limits.maintain && this.refusal === undefined) {
        await this.#seal();
        await maintainRetention(this.#control, retention, this.id, this.#emit);
      }
      if (this.refusal === undefined) await this.#checkAlerts();
    } finally {
      await this.stop();
    }
    this.#refusal.throwIfRefused();
    const finished = this.#pipelines.every((pipeline) => pipeline.emptied);
    return drainReport(this.#drained, noneDrained, finished);
  }

  /** While it runs: waits until nothing is due and nothing is held, and says what was done meanwhile. */
  async catchUp(limits: { maxMs: number }): Promise<DrainReport> {
    const before = { ...this.#drained };
    const deadlineMs = performance.now() + limits.maxMs;
    this.#nudge(() => true);
    let finished = false;
    while (!finished && this.#stopped === undefined && performance.now() < deadlineMs) {
      const due = await nextDueMs(this.#control);
      finished = this.#pipelines.every(
        ({ destinationId, leaseIds }) => (due.get(destinationId) ?? 1) > 0 && leaseIds.length === 0,
      );
      if (!finished) await new Promise((resolve) => setTimeout(resolve, catchUpPollMs));
    }
    return drainReport(this.#drained, before, finished);
  }

  /** Finishes or gives back what is held, within the deadline. */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stop().finally(this.#end);
    await this.#stopped;
  }

  async #open(drain: { maxMessages: number } | null): Promise<void> {
    const { destinations, relay, retention } = this.#setup;
    const definitions = definitionsOf(this.#setup);
    await refuseOutdatedSchema(this.#control);
    const ids = await syncDefinitions(this.#control, definitions, `relay ${this.name}`);
    await maintainPartitions(this.#control, this.#emit);
    if (this.#setup.watches)
      await syncWatches(this.#control, this.#setup.watches, `relay ${this.name}`);
    await this.#openAlerts();
    await this.#beat();
    if (!this.#setup.shard)
      for (const destination of Object.values(destinations)) await destination.open?.();
    const shared = {
      slots: new Slots(relay.concurrency),
      relay,
      database: this.#work,
      relayId: this.id,
      emit: this.#emit,
      doorbells: this.#doorbells,
      lookout: this.#lookout,
      onUnknownLease: (leaseId: string) => keeper.unknown(leaseId),
      drain,
      shards: this.#setup.shard?.of ?? 1,
    };
    for (const [name, destination] of Object.entries(destinations)) {
      const destinationId = ids.get(name) ?? 0;
      const relays = this.#heartbeat.serving[name] ?? 1;
      this.#pipelines.push(new Pipeline({ ...shared, name, destination, destinationId, relays }));
    }
    for (const { name: rollout, to } of rolloutsOf(this.#setup.routes)) {
      const [name, of] = [shadowName(rollout), destinations[to]];
      if (of === undefined) continue;
      const destination = shadowOf(of, rollout, this.#control);
      const destinationId = ids.get(name) ?? 0;
      this.#pipelines.push(new Pipeline({ ...shared, name, destination, destinationId }));
    }
    if (this.#setup.endpoints) await this.#openEndpoints(this.#setup.endpoints, shared);
    const keeper = new LeaseKeeper(this.#control, this.id, this.#pipelines, this.#emit);
    this.#leaseKeeper = keeper;
    const ticker = (what: string, ms: number, task: () => Promise<void>) =>
      new Ticker(what, ms, this.#emit, task);
    const alerts = this.#alerts;
    const checkMs = this.#setup.alerts?.checkMs ?? 0;
    const alertTickers = alerts ? [ticker('alerts', checkMs, () => alerts.check())] : [];
    this.#tickers = [
      ticker('extend leases', Math.floor(relay.leaseMs / 3), () => keeper.extend()),
      ticker('release leases', 1000, () => keeper.releaseUnknown()),
      ticker('reap', relay.reapMs, () => this.#reap()),
      ticker('heartbeat', heartbeatMs, () => this.#beat()),
      ticker('statistics', statisticsMs, () => this.#tally.tell(this.#control)),
      ticker('make partitions', partitionsMs, () => maintainPartitions(this.#control, this.#emit)),
      ticker('mend watches', minuteMs, () => maintainWatches(this.#control, this.#emit)),
      ticker('retention', minuteMs, () =>
        maintainRetention(this.#control, retention, this.id, this.#emit),
      ),
      ...alertTickers,
      ...(this.#setup.audit.seal ? [ticker('seal', sealMs, () => this.#seal())] : []),
      ...(this.#endpoints
        ? [ticker('look for endpoints', endpointsMs, () => this.#lookForEndpoints())]
        : []),
    ];
    this.#isOpen = true;
  }

  async #openAlerts(): Promise<void> {
    const { alerts } = this.#setup;
    if (alerts === undefined) return;
    await syncAlertThresholds(this.#control, alerts.thresholds);
    if (alerts.webhook === null) return;
    const { webhook, repeatMs } = alerts;
    const shard = this.#setup.shard?.name;
    this.#alerts = new AlertTeller(this.#control, this.id, webhook, repeatMs, this.#emit, shard);
    await this.#alerts.open();
  }

  /** A drain that did its work has not failed because nobody could be told. */
  async #checkAlerts(): Promise<void> {
    try {
      await this.#alerts?.check();
    } catch (error) {
      this.#emit({ name: 'trouble', what: 'alerts', error: errorText(error) });
    }
  }

  async #openEndpoints(
    endpoints: ResolvedEndpointOptions,
    shared: Omit<PipelineOptions, 'name' | 'destination' | 'destinationId'>,
  ): Promise<void> {
    const { retry, whenDead } = endpoints.settings;
    await syncEndpointSettings(this.#control, { ...retry, whenDead });
    this.#endpoints = new EndpointPipelines({
      database: this.#control,
      endpoints,
      keys: () => secretKeys(),
      emit: this.#emit,
      open: ({ name, destinationId }, destination) => {
        // others may have opened it a moment ago: the next heartbeat tells how many
        const relays = Math.max(1, ...Object.values(this.#heartbeat.serving));
        const pipeline = new Pipeline({ ...shared, name, destination, destinationId, relays });
        this.#pipelines.push(pipeline);
        this.#unannounced.push(pipeline);
        pipeline.start({ asleep: shared.drain === null });
        return pipeline;
      },
      close: async (pipeline) => {
        await pipeline.stop(performance.now() + this.#setup.relay.stopDeadlineMs);
        this.#pipelines.splice(this.#pipelines.indexOf(pipeline), 1);
        await this.#doorbells.withdraw(pipeline.sleeper);
      },
    });
  }

  async #lookForEndpoints(): Promise<void> {
    if (this.#endpoints === undefined) return;
    const before = this.#endpoints.problems.join();
    await this.#endpoints.look();
    await this.#registerDoorbells(this.#unannounced.splice(0));
    // operators need not wait for the next heartbeat
    if (this.#endpoints.problems.join() !== before) await this.#beat();
  }

  /** A drain has nothing to do with the others. */
  async #withDueWork(rows: EndpointRow[]): Promise<EndpointRow[]> {
    const due = await nextDueMs(this.#control);
    return rows.filter(({ destinationId }) => (due.get(destinationId) ?? 1) <= 0);
  }

  async #seal(): Promise<void> {
    const { audit } = this.#setup;
    if (!audit.seal) return;
    await maintainSeals(this.#control, audit, headSinks(audit, this.#emit), this.#emit);
  }

  async #reap(): Promise<void> {
    const count = await reap(this.#control);
    if (count > 0) {
      this.#emit({ name: 'reaped', count });
      this.#lookout.look();
    }
    const unwatched = await clearDoorbells(this.#control);
    this.#nudge((pipeline) => unwatched.includes(pipeline.destinationId));
  }

  async #beat(): Promise<void> {
    try {
      await this.#heartbeat.beat();
    } catch (error) {
      this.#refusal.take(error);
    }
  }

  async #registerDoorbells(pipelines: readonly Pipeline[] = this.#pipelines): Promise<void> {
    if (this.#wakeUp === undefined || pipelines.length === 0) return;
    await this.#doorbells.register(pipelines.map(({ sleeper }) => sleeper));
  }

  #nudge(which: (pipeline: Pipeline) => boolean): void {
    for (const pipeline of this.#pipelines) if (which(pipeline)) pipeline.sleeper.nudge();
  }

  #report(event: RelayEvent): void {
    if (event.name === 'settled') {
      const pipeline = this.#pipelines.find(({ name }) => name === event.destination);
      if (pipeline) this.#tally.add(pipeline.destinationId, event);
      for (const kind of ['delivered', 'retry', 'reject', 'pause', 'release'] as const)
        this.#drained[kind] += event.counts[kind];
    }
    // for others to see at once
    if (event.name === 'breaker_opened' || event.name === 'breaker_closed')
      void this.#beat().catch(() => {});
    try {
      this.#setup.onEvent?.(event);
    } catch (error) {
      // whoever listens must not be able to stop the relay
      process.emitWarning(`onEvent failed: ${errorText(error)}`, 'WaybillWarning');
    }
  }

  async #stop(): Promise<void> {
    const deadlineMs = performance.now() + this.#setup.relay.stopDeadlineMs;
    const noMoreEndpoints = this.#endpoints?.stop();
    await Promise.all(
      [...this.#pipelines, ...this.#streams].map((running) => running.stop(deadlineMs)),
    );
    const lastMs = Math.max(deadlineMs, performance.now() + farewellMs);
    if (noMoreEndpoints) await within(lastMs, noMoreEndpoints);
    this.#alerts?.stop();
    await within(lastMs, Promise.all(this.#tickers.map((ticker) => ticker.stop())));
    if (this.#alerts) await within(lastMs, this.#alerts.close());
    await this.#giveBackUnknownLeases(lastMs);
    if (this.#wakeUp) await within(lastMs, this.#wakeUp.stop());
    const own = this.#setup.shard ? {} : this.#setup.destinations;
    for (const [name, destination] of Object.entries(own)) {
      try {
        await within(lastMs, Promise.resolve(destination.close?.()));
      } catch (error) {
        this.#emit({ name: 'trouble', what: `close ${name}`, error: errorText(error) });
      }
    }
    if (this.#endpoints) await within(lastMs, this.#endpoints.close());
    if (this.#leaseKeeper) {
      await within(
        lastMs,
        this.#tally.tell(this.#control).catch(() => {}),
      );
      await within(lastMs, signOff(this.#control, this.id));
    }
    await this.#control.close(Math.max(lastMs - performance.now(), 0));
    this.#emit({ name: 'relay_stopped', relay: this.name });
  }

  /** A claim that has not answered by now is cut off; it and those whose answer was lost may hold a lease. */
  async #giveBackUnknownLeases(lastMs: number): Promise<void> {
    await this.#work.close(Math.max(lastMs - performance.now(), 0) / 2);
    if (this.#leaseKeeper) await within(lastMs, this.#leaseKeeper.releaseUnknown());
  }
}
