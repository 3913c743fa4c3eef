// What a relay does again and again beside its deliveries, and how often: most of it for all relays of the database,
// of which any may do it and one is enough. Each chore runs by itself: one that hangs or fails keeps no other.

import { reap } from '../database/claims.js';
import type { Database } from '../database/connection.js';
import { clearDoorbells } from '../database/doorbells.js';
import type { Emit } from '../telemetry/events.js';
import type { AlertTeller } from './alert-teller.js';
import { headSinks } from './head-sinks.js';
import type { LeaseKeeper } from './lease-keeper.js';
import { maintainPartitions, maintainRetention, maintainWatches } from './maintenance.js';
import type { Pipelines } from './pipelines.js';
import { maintainSeals } from './sealing.js';
import type { RelaySetup } from './setup.js';
import type { Tally } from './tally.js';
import { Ticker } from './ticker.js';

export type ChoresOptions = {
  setup: RelaySetup;
  relayId: string;
  database: Database;
  pipelines: Pipelines;
  leases: LeaseKeeper;
  tally: Tally;
  alerts: AlertTeller | undefined;
  beat: () => Promise<void>;
  /** If it serves endpoints. */
  lookForEndpoints: (() => Promise<void>) | undefined;
  emit: Emit;
};

const releaseMs = 1000;
const heartbeatMs = 5000;
const statisticsMs = 5000;
const partitionsMs = 600_000;
const minuteMs = 60_000;
const sealMs = 10_000;
const endpointsMs = 1000;

export class Chores {
  readonly #options: ChoresOptions;
  readonly #tickers: readonly Ticker[];

  constructor(options: ChoresOptions) {
    this.#options = options;
    const { setup, database, leases, tally, alerts, beat, lookForEndpoints, emit } = options;
    const { relay, audit } = setup;
    const every = (ms: number, what: string, task: () => Promise<void>) =>
      new Ticker(what, ms, emit, task);
    this.#tickers = [
      every(Math.floor(relay.leaseMs / 3), 'extend leases', () => leases.extend()),
      every(releaseMs, 'release leases', () => leases.releaseUnknown()),
      every(relay.reapMs, 'reap', () => this.#reap()),
      every(heartbeatMs, 'heartbeat', beat),
      every(statisticsMs, 'statistics', () => tally.tell(database)),
      every(partitionsMs, 'make partitions', () => maintainPartitions(database, emit)),
      every(minuteMs, 'mend watches', () => maintainWatches(database, emit)),
      every(minuteMs, 'retention', () => this.#retain()),
      ...(alerts ? [every(setup.alerts?.checkMs ?? 0, 'alerts', () => alerts.check())] : []),
      ...(audit.seal ? [every(sealMs, 'seal', () => this.#seal())] : []),
      ...(lookForEndpoints ? [every(endpointsMs, 'look for endpoints', lookForEndpoints)] : []),
    ];
  }

  start(): void {
    for (const ticker of this.#tickers) ticker.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#tickers.map((ticker) => ticker.stop()));
  }

  /** At once, for a relay that does not run long enough for their turn to come: sealing, and retention if it is due. */
  async maintain(): Promise<void> {
    if (this.#options.setup.audit.seal) await this.#seal();
    await this.#retain();
  }

  async #reap(): Promise<void> {
    const { database, pipelines, emit } = this.#options;
    const count = await reap(database);
    if (count > 0) {
      emit({ name: 'reaped', count });
      pipelines.look();
    }
    const unwatched = await clearDoorbells(database);
    pipelines.nudge((pipeline) => unwatched.includes(pipeline.destinationId));
  }

  async #seal(): Promise<void> {
    const { setup, database, emit } = this.#options;
    await maintainSeals(database, setup.audit, headSinks(setup.audit, emit), emit);
  }

  async #retain(): Promise<void> {
    const { setup, relayId, database, emit } = this.#options;
    await maintainRetention(database, setup.retention, relayId, emit);
  }
}
