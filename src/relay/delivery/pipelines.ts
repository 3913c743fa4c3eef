// All pipelines of one relay: destinations of the configuration, those that features add to it, and endpoints, which
// come and go while the relay runs. They share the relay's concurrency limit and connections,
// and the statements that end delivered leases. Endpoints also share the statements that claim and settle.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { claimBatch, claimBatches, settleMany } from '../../database/claims.js';
import type { ClaimRequest, SettleRequest, SettleResult } from '../../database/claims.js';
import type { Database } from '../../database/connection.js';
import type { Destination } from '../../destinations/destination.js';
import type { Emit } from '../../telemetry/events.js';
import type { WakeUp } from '../wakeup/wake-up.js';
import { Pipeline } from './pipeline.js';
import type { PipelineOptions } from './pipeline.js';
import type { RelaySetup } from '../setup.js';
import { addedDestinations } from '../../features/in-relay.js';
import { ConcurrencyLimit } from './concurrency-limit.js';
import { DeliveredLeases } from './delivered-leases.js';
import { SharedStatement } from './shared-statement.js';

export type PipelinesOptions = {
  setup: RelaySetup;
  relayId: string;
  work: Database;
  control: Database;
  wakeUp: WakeUp;
  emit: Emit;
  /** Living relays by destination. */
  serving: () => Readonly<Record<string, number>>;
  /** Living relays that serve the endpoints. */
  servingEndpoints: () => number;
  onUnknownLease: PipelineOptions['onUnknownLease'];
};

export class Pipelines {
  readonly #options: PipelinesOptions;
  readonly #all: Pipeline[] = [];
  readonly #byName = new Map<string, Pipeline>();
  readonly #slots: ConcurrencyLimit;
  readonly #delivered: DeliveredLeases;
  readonly #claims: SharedStatement<ClaimRequest, ClaimedMessage[]>;
  readonly #settles: SharedStatement<SettleRequest, SettleResult>;
  #drain: PipelineOptions['drain'] = null;

  constructor(options: PipelinesOptions) {
    this.#options = options;
    this.#slots = new ConcurrencyLimit(options.setup.relay.concurrency);
    this.#delivered = new DeliveredLeases(options.work, options.relayId);
    const { work, relayId } = options;
    this.#claims = new SharedStatement({
      run: (requests) => claimMany(work, requests),
      sizeOf: ({ limit }) => limit,
    });
    this.#settles = new SharedStatement({
      run: (requests) => settleMany(work, relayId, requests),
      sizeOf: ({ endings }) => endings.length,
    });
  }

  /** Always the same array, so callers that keep it see endpoints come and go. */
  get all(): readonly Pipeline[] {
    return this.#all;
  }

  named(name: string): Pipeline | undefined {
    return this.#byName.get(name);
  }

  /** Makes the pipelines of the configuration, with the destination ids of the database. */
  open(ids: ReadonlyMap<string, number>, drain: PipelineOptions['drain']): void {
    const { setup, control, serving } = this.#options;
    this.#drain = drain;
    for (const [name, destination] of Object.entries(setup.destinations)) {
      const destinationId = ids.get(name) ?? 0;
      this.#make({ name, destination, destinationId, relays: serving()[name] ?? 1 });
    }
    for (const { name, make } of addedDestinations(setup))
      this.#make({ name, destination: make(control), destinationId: ids.get(name) ?? 0 });
  }

  start(): void {
    for (const pipeline of this.#all) pipeline.start();
  }

  /** Makes and starts the pipeline of an endpoint. */
  openEndpoint(
    {
      name,
      destinationId,
      tenantId,
      expireAfterMs,
    }: {
      name: string;
      destinationId: number;
      tenantId: string | null;
      expireAfterMs: number | null;
    },
    destination: Destination,
  ): Pipeline {
    const pipeline = this.#make({
      name,
      destination,
      destinationId,
      isEndpoint: true,
      tenantId,
      expireAfterMs,
      relays: this.#options.servingEndpoints(),
      claim: (request) => this.#claims.ask(request),
      settle: (request) => this.#settles.ask(request),
    });
    pipeline.start();
    return pipeline;
  }

  async close(pipeline: Pipeline): Promise<void> {
    const { wakeUp } = this.#options;
    wakeUp.forget(pipeline.schedule);
    await pipeline.stop(performance.now() + this.#options.setup.relay.stopDeadlineMs);
    this.#all.splice(this.#all.indexOf(pipeline), 1);
    this.#byName.delete(pipeline.name);
    await wakeUp.leave(pipeline.schedule);
  }

  #make(
    own: Pick<
      PipelineOptions,
      | 'name'
      | 'destination'
      | 'destinationId'
      | 'isEndpoint'
      | 'tenantId'
      | 'expireAfterMs'
      | 'relays'
      | 'claim'
      | 'settle'
    >,
  ): Pipeline {
    const { setup, relayId, work, wakeUp, emit, onUnknownLease } = this.#options;
    const pipeline = new Pipeline({
      ...own,
      slots: this.#slots,
      delivered: this.#delivered,
      relay: setup.relay,
      database: work,
      relayId,
      emit,
      wakeUp,
      onUnknownLease,
      drain: this.#drain,
      shards: setup.shard?.of ?? 1,
    });
    this.#all.push(pipeline);
    this.#byName.set(pipeline.name, pipeline);
    return pipeline;
  }
}

/** A single claim needs no arrays. */
async function claimMany(
  work: Database,
  requests: readonly ClaimRequest[],
): Promise<ClaimedMessage[][]> {
  const [first, ...others] = requests;
  if (first === undefined || others.length > 0) return claimBatches(work, requests);
  return [await claimBatch(work, first)];
}
