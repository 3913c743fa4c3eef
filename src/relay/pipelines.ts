// All the pipelines of one relay: those of the configuration, the shadows of its rollouts, and those of the endpoints,
// which come and go while it runs; and what wakes them: the bell, if the relay listens for it, and the lookout. They
// share the relay's slots and connections and are made in one place, so that none differs from the others by accident.

import type { Database } from '../database/connection.js';
import type { EndpointRow } from '../database/endpoints.js';
import type { Destination } from '../destinations/destination.js';
import type { Emit } from '../telemetry/events.js';
import { Doorbells } from './doorbells.js';
import { Lookout } from './lookout.js';
import { Pipeline, servesAll } from './pipeline.js';
import type { PipelineOptions } from './pipeline.js';
import type { RelaySetup } from './setup.js';
import { rolloutsOf, shadowName, shadowOf } from './shadows.js';
import { Slots } from './slots.js';
import { WakeUp } from './wake-up.js';

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
  /** Opened just now: producers do not know yet that somebody listens for them. */
  readonly #unannounced: Pipeline[] = [];
  readonly #slots: Slots;
  readonly #doorbells: Doorbells;
  readonly #lookout: Lookout;
  #wakeUp: WakeUp | undefined;
  #drain: PipelineOptions['drain'] = null;

  constructor(options: PipelinesOptions) {
    this.#options = options;
    const { setup, relayId, work, emit } = options;
    const isListening = () => this.#wakeUp?.listening ?? false;
    this.#slots = new Slots(setup.relay.concurrency);
    this.#doorbells = new Doorbells(work, relayId, isListening);
    this.#lookout = new Lookout({
      database: work,
      fallbackPollMs: setup.relay.fallbackPollMs,
      maySilence: servesAll(setup.relay),
      isListening,
      emit,
    });
  }

  /** Always the same list: whoever keeps it sees what comes and goes. */
  get all(): readonly Pipeline[] {
    return this.#all;
  }

  /** Makes those of the configuration, with the ids that the database gave their destinations. */
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

  /** Makes and starts the one of an endpoint. */
  openEndpoint({ name, destinationId }: EndpointRow, destination: Destination): Pipeline {
    // others may have opened it a moment ago: the next heartbeat tells how many
    const relays = Math.max(1, ...Object.values(this.#options.serving()));
    const pipeline = this.#make({ name, destination, destinationId, relays });
    this.#unannounced.push(pipeline);
    pipeline.start({ asleep: this.#drain === null });
    return pipeline;
  }

  async close(pipeline: Pipeline): Promise<void> {
    await pipeline.stop(performance.now() + this.#options.setup.relay.stopDeadlineMs);
    this.#all.splice(this.#all.indexOf(pipeline), 1);
    await this.#doorbells.withdraw(pipeline.sleeper);
  }

  /** Resolves after the first attempt, whether it succeeded or not. */
  async listen(onEndpoints: () => void): Promise<void> {
    const { relayId, control, emit } = this.#options;
    this.#wakeUp = new WakeUp({
      database: control,
      relayId,
      emit,
      onRing: (destinationId) => {
        if (destinationId === null) this.look();
        else this.nudge((pipeline) => pipeline.destinationId === destinationId);
      },
      onEndpoints,
      onListening: () => void this.register().catch(() => {}),
    });
    await this.#wakeUp.start();
  }

  async stopListening(): Promise<void> {
    await this.#wakeUp?.stop();
  }

  /** Tells producers whether they may ring for these; without a listener there is nothing to tell. */
  async register(pipelines: readonly Pipeline[] = this.#all): Promise<void> {
    if (this.#wakeUp === undefined || pipelines.length === 0) return;
    await this.#doorbells.register(pipelines.map(({ sleeper }) => sleeper));
  }

  async registerNew(): Promise<void> {
    await this.register(this.#unannounced.splice(0));
  }

  /** There may be work for these: they look at once. */
  nudge(which: (pipeline: Pipeline) => boolean): void {
    for (const pipeline of this.#all) if (which(pipeline)) pipeline.sleeper.nudge();
  }

  /** There may be work for some of those that sleep. */
  look(): void {
    this.#lookout.look();
  }

  #make(own: Pick<PipelineOptions, 'name' | 'destination' | 'destinationId' | 'relays'>): Pipeline {
    const { setup, relayId, work, emit, onUnknownLease } = this.#options;
    const pipeline = new Pipeline({
      ...own,
      slots: this.#slots,
      relay: setup.relay,
      database: work,
      relayId,
      emit,
      doorbells: this.#doorbells,
      lookout: this.#lookout,
      onUnknownLease,
      drain: this.#drain,
      shards: setup.shard?.of ?? 1,
    });
    this.#all.push(pipeline);
    return pipeline;
  }
}
