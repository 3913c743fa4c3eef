// All pipelines of one relay: destinations of the configuration, shadows of its rollouts, and endpoints, which come
// and go while the relay runs. Holds what wakes them: the due poller, and the notification listener if the relay
// listens. The pipelines share the relay's concurrency limit and connections.

import type { Database } from '../../database/connection.js';
import type { EndpointRow } from '../../features/endpoints/database.js';
import type { Destination } from '../../destinations/destination.js';
import type { Emit } from '../../telemetry/events.js';
import { ListenerRegistry } from '../wakeup/listener-registry.js';
import { DuePoller } from '../wakeup/due-poller.js';
import { Pipeline, servesAll } from './pipeline.js';
import type { PipelineOptions } from './pipeline.js';
import type { RelaySetup } from '../setup.js';
import { rolloutsOf, shadowName, shadowOf } from '../../features/rollouts/shadows.js';
import { ConcurrencyLimit } from './concurrency-limit.js';
import { NotificationListener } from '../wakeup/notification-listener.js';

export type PipelinesOptions = {
  setup: RelaySetup;
  relayId: string;
  work: Database;
  control: Database;
  emit: Emit;
  /** Living relays by destination. */
  serving: () => Readonly<Record<string, number>>;
  onUnknownLease: PipelineOptions['onUnknownLease'];
};

export class Pipelines {
  readonly #options: PipelinesOptions;
  readonly #all: Pipeline[] = [];
  /** Opened just now: producers do not know yet that a relay listens for their destinations. */
  readonly #unannounced: Pipeline[] = [];
  readonly #slots: ConcurrencyLimit;
  readonly #listeners: ListenerRegistry;
  readonly #duePoller: DuePoller;
  #wakeUp: NotificationListener | undefined;
  #drain: PipelineOptions['drain'] = null;

  constructor(options: PipelinesOptions) {
    this.#options = options;
    const { setup, relayId, work, emit } = options;
    const isListening = () => this.#wakeUp?.listening ?? false;
    this.#slots = new ConcurrencyLimit(setup.relay.concurrency);
    this.#listeners = new ListenerRegistry(work, relayId, isListening);
    this.#duePoller = new DuePoller({
      database: work,
      fallbackPollMs: setup.relay.fallbackPollMs,
      maySilence: servesAll(setup.relay),
      isListening,
      emit,
    });
  }

  /** Always the same array, so callers that keep it see endpoints come and go. */
  get all(): readonly Pipeline[] {
    return this.#all;
  }

  /** Makes the pipelines of the configuration, with the destination ids of the database. */
  open(ids: ReadonlyMap<string, number>, drain: PipelineOptions['drain']): void {
    const { setup, control, serving } = this.#options;
    const { destinations, routes } = setup;
    this.#drain = drain;
    for (const [name, destination] of Object.entries(destinations)) {
      const destinationId = ids.get(name) ?? 0;
      this.#make({ name, destination, destinationId, relays: serving()[name] ?? 1 });
    }
    for (const { name: rollout, to } of rolloutsOf(routes)) {
      const [name, of] = [shadowName(rollout), destinations[to]];
      if (of === undefined) continue;
      const destination = shadowOf(of, rollout, control);
      this.#make({ name, destination, destinationId: ids.get(name) ?? 0 });
    }
  }

  start(): void {
    for (const pipeline of this.#all) pipeline.start();
  }

  /** Makes and starts the pipeline of an endpoint. */
  openEndpoint({ name, destinationId, tenantId }: EndpointRow, destination: Destination): Pipeline {
    // other relays may just have opened it too: the next heartbeat tells how many
    const relays = Math.max(1, ...Object.values(this.#options.serving()));
    const pipeline = this.#make({ name, destination, destinationId, tenantId, relays });
    this.#unannounced.push(pipeline);
    pipeline.start({ idle: this.#drain === null });
    return pipeline;
  }

  async close(pipeline: Pipeline): Promise<void> {
    await pipeline.stop(performance.now() + this.#options.setup.relay.stopDeadlineMs);
    this.#all.splice(this.#all.indexOf(pipeline), 1);
    await this.#listeners.withdraw(pipeline.schedule);
  }

  /** Resolves after the first attempt, whether it succeeded or not. */
  async listen(onEndpoints: () => void): Promise<void> {
    const { relayId, control, emit } = this.#options;
    this.#wakeUp = new NotificationListener({
      database: control,
      relayId,
      emit,
      onNotification: (destinationId) => {
        if (destinationId === null) this.look();
        else this.wake((pipeline) => pipeline.destinationId === destinationId);
      },
      onEndpoints,
      onListening: () => void this.register().catch(() => {}),
    });
    await this.#wakeUp.start();
  }

  async stopListening(): Promise<void> {
    await this.#wakeUp?.stop();
  }

  /** Registers these pipelines as listening or active. A relay without a listener registers nothing. */
  async register(pipelines: readonly Pipeline[] = this.#all): Promise<void> {
    if (this.#wakeUp === undefined || pipelines.length === 0) return;
    await this.#listeners.register(pipelines.map(({ schedule }) => schedule));
  }

  async registerNew(): Promise<void> {
    await this.register(this.#unannounced.splice(0));
  }

  /** There may be work for these pipelines: they claim at once. */
  wake(which: (pipeline: Pipeline) => boolean): void {
    for (const pipeline of this.#all) if (which(pipeline)) pipeline.schedule.wake();
  }

  /** There may be work for some idle pipelines: the due poller looks for it. */
  look(): void {
    this.#duePoller.look();
  }

  #make(
    own: Pick<PipelineOptions, 'name' | 'destination' | 'destinationId' | 'tenantId' | 'relays'>,
  ): Pipeline {
    const { setup, relayId, work, emit, onUnknownLease } = this.#options;
    const pipeline = new Pipeline({
      ...own,
      slots: this.#slots,
      relay: setup.relay,
      database: work,
      relayId,
      emit,
      listeners: this.#listeners,
      duePoller: this.#duePoller,
      onUnknownLease,
      drain: this.#drain,
      shards: setup.shard?.of ?? 1,
    });
    this.#all.push(pipeline);
    return pipeline;
  }
}
