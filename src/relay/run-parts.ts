// The parts of one run of a relay: pipelines and what serves them. They are made, opened and started in the order in
// which they need each other, and each is closed within the rest of the deadline.

import { Database } from '../database/connection.js';
import { signOff } from '../database/definitions.js';
import { refuseOutdatedSchema } from '../database/versions.js';
import { takeSample } from '../listing/statistics.js';
import { troubleOf } from '../telemetry/events.js';
import { version } from '../core/version.js';
import { relayParts } from '../features/in-relay.js';
import { Declarations } from '../features/applications/declarations.js';
import { endpointPipelinesOf } from '../features/endpoints/pipelines.js';
import type { EndpointPipelines } from '../features/endpoints/pipelines.js';
import { LeaseKeeper } from './delivery/lease-keeper.js';
import { Pipelines } from './delivery/pipelines.js';
import type { StreamReader } from './log/stream-reader.js';
import { openStreams } from './log/streams.js';
import type { RelayPart } from './part.js';
import { Reports } from './reports.js';
import { fingerprintOf, workConnections } from './setup.js';
import type { RelaySetup } from './setup.js';
import { Chores } from './upkeep/chores.js';
import { maintainPartitions } from './upkeep/daily-maintenance.js';
import { Heartbeat } from './upkeep/heartbeat.js';
import { WakeUp } from './wakeup/wake-up.js';
import { lastLookMs } from './sleep/next-work.js';
import { within } from './within.js';

export type RunPartsOptions = {
  setup: RelaySetup;
  relay: { id: string; name: string };
  /** A heartbeat failed, perhaps because the schema refuses this relay. May throw. */
  onHeartbeatFailed: (error: unknown) => void;
};

/** Runs a step of the start, which may be repeated. */
export type Step = <T>(work: () => Promise<T>) => Promise<T>;

export class RunParts {
  readonly reports: Reports;
  /** Separate connections, so leases are extended and heartbeats sent even while every connection for work is busy. */
  readonly control: Database;
  readonly wakeUp: WakeUp;
  readonly pipelines: Pipelines;
  /** Set when everything is open and work can begin. */
  chores: Chores | undefined;
  /** Only for a relay that serves endpoints. */
  endpoints: EndpointPipelines | undefined;
  readonly #options: RunPartsOptions;
  readonly #work: Database;
  readonly #leases: LeaseKeeper;
  readonly #heartbeat: Heartbeat;
  readonly #declarations: Declarations;
  #features: readonly RelayPart[] = [];
  streams: readonly StreamReader[] = [];
  /** The database may have a declaration of this relay, so it has to sign off. */
  #declared = false;

  constructor(options: RunPartsOptions) {
    this.#options = options;
    const { setup, relay } = options;
    this.reports = new Reports({
      onEvent: setup.onEvent,
      pipeline: (name) => this.pipelines.named(name),
      // a heartbeat, so other relays see the change at once
      onBreaker: () => void this.#beat().catch(() => {}),
    });
    const { emit } = this.reports;
    this.#work = new Database(setup.database, {
      connections: workConnections(setup),
      applicationName: 'waybill relay',
    });
    this.control = new Database(setup.database, {
      connections: 2,
      applicationName: 'waybill relay control',
      beside: this.#work,
    });
    this.wakeUp = new WakeUp({
      work: this.#work,
      control: this.control,
      relayId: relay.id,
      relay: setup.relay,
      emit,
    });
    this.pipelines = new Pipelines({
      setup,
      relayId: relay.id,
      work: this.#work,
      control: this.control,
      wakeUp: this.wakeUp,
      emit,
      serving: () => this.#heartbeat.serving,
      servingEndpoints: () => this.#heartbeat.servingEndpoints,
      onUnknownLease: (leaseId) => this.#leases.unknown(leaseId),
    });
    this.#leases = new LeaseKeeper(this.control, relay.id, this.pipelines.all, emit);
    this.#declarations = new Declarations(setup, this.control, relay, () => this.#features);
    this.#heartbeat = new Heartbeat({
      database: this.control,
      identity: {
        ...relay,
        version,
        application: setup.application,
        configuration: fingerprintOf(setup),
        destinations: Object.keys(setup.destinations),
        endpoints: setup.endpoints !== undefined,
      },
      pipelines: this.pipelines.all,
      problems: () => [
        ...(this.endpoints?.problems ?? []),
        ...(this.#declarations.problem === null ? [] : [this.#declarations.problem]),
      ],
      wakeUp: this.wakeUp,
      emit,
    });
  }

  /** Stores the definitions and makes the pipelines. Nothing is claimed yet. */
  async open(drain: { maxMessages: number } | null, step: Step): Promise<void> {
    const { setup, relay } = this.#options;
    const { control: database, pipelines, wakeUp } = this;
    const { emit, counters } = this.reports;
    await step(() => refuseOutdatedSchema(database));
    this.#declared = true;
    // a start does not wait for a lock within the step: it repeats the whole step
    const lockWaitMs = drain === null && !setup.shard ? 0 : undefined;
    const ids = await step(() =>
      this.#declarations.declare(drain === null ? 'start' : 'drain', lockWaitMs),
    );
    await step(() => maintainPartitions(database, emit));
    const { actor } = this.#declarations;
    this.#features = relayParts({ setup, relayId: relay.id, actor, database, emit });
    for (const part of this.#features) if (part.declare) await step(part.declare);
    for (const part of this.#features) await part.open?.();
    await step(() => this.#beat());
    if (!setup.shard)
      for (const destination of Object.values(setup.destinations)) await destination.open?.();
    pipelines.open(ids, drain);
    this.endpoints = await step(() =>
      endpointPipelinesOf(setup, { database, pipelines, wakeUp, emit }),
    );
    this.chores = new Chores({
      setup,
      relayId: relay.id,
      relayName: relay.name,
      database,
      wakeUp,
      leases: this.#leases,
      counters,
      parts: this.#features,
      beat: () => this.#beat(),
      // a drain does not run for long enough to know which definitions left the configuration
      tendDefinitions: drain === null ? () => this.tendDefinitions() : undefined,
      lookForEndpoints: this.endpoints && (() => this.#lookForEndpoints()),
      emit,
    });
  }

  /** Starts work until the close. A drain starts only what it needs. */
  async start(step: Step): Promise<void> {
    const { setup } = this.#options;
    if (this.endpoints) this.wakeUp.serveEndpoints(this.endpoints);
    if (setup.relay.listen)
      await this.wakeUp.listen(() => void this.#lookForEndpoints().catch(() => {}));
    await step(() => this.wakeUp.registerAll());
    this.pipelines.start();
    await step(() => this.#lookForEndpoints());
    await this.startStreams(null, step);
    this.chores?.start();
  }

  async startStreams(drain: { maxMessages: number } | null, step: Step): Promise<void> {
    const { setup, relay } = this.#options;
    const [work, control, { emit }] = [this.#work, this.control, this.reports];
    this.streams = openStreams(setup, { work, control, relay, emit, drain });
    for (const stream of this.streams) await step(() => stream.start());
  }

  async tendDefinitions(): Promise<void> {
    const before = this.#declarations.problem;
    await this.#declarations.tend();
    const { problem } = this.#declarations;
    if (problem === before) return;
    if (problem !== null)
      this.reports.emit({ name: 'trouble', what: 'tend definitions', error: problem });
    // operators need not wait for the next heartbeat
    await this.#beat();
  }

  /**
   * Deliveries may end until the deadline. The rest of the close has at least `farewellMs`, even after the deadline.
   * `afterSignOff` is called before the last connections are closed.
   */
  async close(
    deadlineMs: number,
    farewellMs: number,
    afterSignOff?: () => Promise<void>,
  ): Promise<void> {
    const { chores, endpoints, control } = this;
    const noMoreEndpoints = endpoints?.stop();
    await Promise.all(
      [...this.pipelines.all, ...this.streams].map((running) => running.stop(deadlineMs)),
    );
    const lastMs = Math.max(deadlineMs, performance.now() + farewellMs);
    if (noMoreEndpoints) await within(lastMs, noMoreEndpoints);
    for (const part of this.#features) part.stop?.();
    if (chores) await within(lastMs, chores.stop());
    for (const part of this.#features) if (part.close) await within(lastMs, part.close());
    await this.#giveBackUnknownLeases(lastMs);
    await within(lastMs, this.wakeUp.stopListening());
    await this.#closeDestinations(lastMs);
    if (endpoints) await within(lastMs, endpoints.close());
    if (chores) await within(lastMs, this.#tellStatistics());
    if (this.#declared) await within(lastMs, signOff(control, this.#options.relay.id));
    if (afterSignOff) await within(performance.now() + lastLookMs, afterSignOff());
    await control.close(Math.max(lastMs - performance.now(), 0));
  }

  async #tellStatistics(): Promise<void> {
    await this.reports.counters.tell(this.control);
    await takeSample(this.control);
  }

  /** Aborts claims that have not answered; these, and claims whose answer was lost, may hold a lease. */
  async #giveBackUnknownLeases(lastMs: number): Promise<void> {
    await this.#work.close(Math.max(lastMs - performance.now(), 0) / 2);
    if (this.chores) await within(lastMs, this.#leases.releaseUnknown());
  }

  /** Destinations of several shards are closed by the relay of all shards, which opened them. */
  async #closeDestinations(lastMs: number): Promise<void> {
    const { setup } = this.#options;
    if (setup.shard) return;
    for (const [name, destination] of Object.entries(setup.destinations)) {
      try {
        await within(lastMs, Promise.resolve(destination.close?.()));
      } catch (error) {
        this.reports.emit(troubleOf(`close ${name}`, error));
      }
    }
  }

  async #lookForEndpoints(): Promise<void> {
    if (this.endpoints === undefined) return;
    const before = this.endpoints.problems.join();
    await this.endpoints.look();
    // operators need not wait for the next heartbeat
    if (this.endpoints.problems.join() !== before) await this.#beat();
  }

  async #beat(): Promise<void> {
    try {
      await this.#heartbeat.beat();
    } catch (error) {
      this.#options.onHeartbeatFailed(error);
    }
  }
}
