// One destination at one relay: claimer → dispatcher → settler, joined so that pressure goes backwards.
// Each destination has a pipeline of its own; a hanging one slows no other.

import type { Destination } from '../destinations/destination.js';
import type { Emit } from '../telemetry/events.js';
import { Claimer } from './claimer.js';
import type { ClaimerOptions } from './claimer.js';
import { Dispatcher } from './dispatcher.js';
import type { Doorbells } from './doorbells.js';
import type { Lookout } from './lookout.js';
import type { ResolvedRelayOptions } from './options.js';
import { Settler } from './settler.js';
import { Sleeper } from './sleeper.js';
import { within } from './within.js';
import type { Slots } from './slots.js';

export type PipelineOptions = Omit<
  ClaimerOptions,
  'sleeper' | 'dispatcher' | 'settler' | 'concurrency' | 'fair'
> & {
  destination: Destination;
  slots: Slots;
  doorbells: Doorbells;
  lookout: Lookout;
};

export class Pipeline {
  readonly name: string;
  readonly destinationId: number;
  readonly sleeper: Sleeper;
  readonly #emit: Emit;
  readonly #claimer: Claimer;
  readonly #dispatcher: Dispatcher;
  readonly #settler: Settler;
  #running: Promise<void> = Promise.resolve();

  constructor({ destination, slots, doorbells, lookout, ...options }: PipelineOptions) {
    const { name, database, relayId, destinationId, relay, emit } = options;
    this.name = name;
    this.destinationId = destinationId;
    this.#emit = emit;
    this.sleeper = new Sleeper({
      database,
      destinationId,
      pollMs: relay.pollMs,
      maySilence: servesAll(relay),
      doorbells,
      lookout,
    });
    this.#settler = new Settler({
      database,
      relayId,
      destination: name,
      destinationId,
      emit,
      onGivenUp: (leaseId) => this.#dispatcher.releaseQueued(leaseId),
      onSettled: (newWork) => {
        this.#dispatcher.resume();
        this.#claimer.roomMayBeFree();
        // it may be due sooner than the sleeper thinks
        if (newWork) this.sleeper.nudge();
      },
    });
    this.#dispatcher = new Dispatcher({
      name,
      destination,
      settler: this.#settler,
      slots,
      emit,
      onIdle: () => this.#claimer.roomMayBeFree(),
    });
    this.#claimer = new Claimer({
      ...options,
      concurrency:
        destination.settings.concurrency * ('batchSize' in destination ? destination.batchSize : 1),
      fair: destination.settings.fairness === 'tenant',
      sleeper: this.sleeper,
      dispatcher: this.#dispatcher,
      settler: this.#settler,
    });
  }

  get leaseIds(): string[] {
    return this.#settler.leaseIds;
  }

  get emptied(): boolean {
    return this.#claimer.emptied;
  }

  /** `asleep`: the first look is left to the lookout, which knows whether there is anything to find. */
  start({ asleep = false } = {}): void {
    this.#running = this.#claimer.run(asleep);
  }

  /** Resolves when the claimer has nothing more to do: at a stop, or at the end of a drain. */
  async ended(): Promise<void> {
    await this.#running;
  }

  /** Somebody else took the lease over: send nothing more of it. */
  lost(leaseId: string): void {
    this.#dispatcher.releaseQueued(leaseId);
    // its last endings may have been recorded just now, and the answer be on its way
    if (this.#settler.isTelling(leaseId)) return;
    this.#settler.forget(leaseId);
    this.#emit({ name: 'lease_lost', destination: this.name, leaseId, messageIds: [] });
  }

  /** Finishes or gives back what is held, until `deadlineMs` (on the clock of performance.now()). */
  async stop(deadlineMs: number): Promise<void> {
    this.#claimer.stop();
    this.#dispatcher.stop();
    await within(deadlineMs, this.#running);
    // a third of the time is left for telling the database
    const patienceMs = performance.now() + ((deadlineMs - performance.now()) * 2) / 3;
    await poll(patienceMs, () => this.#dispatcher.idle);
    this.#dispatcher.abortAll();
    await poll(deadlineMs, () => this.#settler.held === 0);
    this.#settler.abandon();
    this.#dispatcher.close();
  }
}

/** False for a relay that serves only some tenants or one namespace. */
export function servesAll({ tenantIds, namespace }: ResolvedRelayOptions): boolean {
  return tenantIds === undefined && namespace === undefined;
}

async function poll(deadlineMs: number, condition: () => boolean): Promise<void> {
  while (!condition() && performance.now() < deadlineMs) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
