// Periodic tasks of a relay besides its deliveries, with their intervals. Most serve all relays of the database: any
// relay may run them, and one run is enough. Each task runs by itself, so one that hangs or fails delays no other.

import type { Database } from '../../database/connection.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import type { LeaseKeeper } from '../delivery/lease-keeper.js';
import { maintainPartitions, retentionTask } from './daily-maintenance.js';
import { misdatedTask } from './misdated.js';
import type { RelayPart } from '../part.js';
import type { RelaySetup } from '../setup.js';
import type { WakeUp } from '../wakeup/wake-up.js';
import type { Counters } from './counters.js';
import { IntervalTask } from './interval-task.js';
import { Upkeep } from './upkeep.js';

export type ChoresOptions = {
  setup: RelaySetup;
  relayId: string;
  relayName: string;
  database: Database;
  wakeUp: WakeUp;
  leases: LeaseKeeper;
  counters: Counters;
  parts: readonly RelayPart[];
  beat: () => Promise<void>;
  /** Not for a drain. */
  tendDefinitions: (() => Promise<void>) | undefined;
  /** Only for a relay that serves endpoints. */
  lookForEndpoints: (() => Promise<void>) | undefined;
  emit: Emit;
};

const releaseMs = 1000;
const heartbeatMs = 5000;
const statisticsMs = 5000;
const partitionsMs = 600_000;
const minuteMs = 60_000;
/** Changes of endpoints are notified; without LISTEN, only this finds them. */
const endpointsMs = 10_000;
const unheardEndpointsMs = 1000;

export class Chores {
  readonly #options: ChoresOptions;
  readonly #tasks: readonly IntervalTask[];
  readonly #upkeep: Upkeep;
  readonly #releaseMisdated: () => Promise<void>;
  readonly #runRetention: () => Promise<void>;

  constructor(options: ChoresOptions) {
    this.#options = options;
    const { setup, database, leases, counters, parts, beat, lookForEndpoints, emit } = options;
    const { tendDefinitions, wakeUp } = options;
    const { relay } = setup;
    this.#releaseMisdated = misdatedTask(database, `relay ${options.relayName}`, emit, () =>
      wakeUp.look(),
    );
    const releaseMisdated = this.#releaseMisdated;
    const upkeep = new Upkeep({ database, relay, wakeUp, releaseMisdated, emit });
    this.#upkeep = upkeep;
    const lookForEndpointsMs = () => (wakeUp.isListening ? endpointsMs : unheardEndpointsMs);
    this.#runRetention = retentionTask(database, setup.retention, options.relayId, emit);
    const every = (ms: number | (() => number), what: string, task: () => Promise<void>) =>
      new IntervalTask(what, ms, emit, task);
    this.#tasks = [
      every(Math.floor(relay.leaseMs / 3), 'extend leases', () => leases.extend()),
      every(releaseMs, 'release leases', () => leases.releaseUnknown()),
      every(
        () => upkeep.waitMs,
        'upkeep',
        () => upkeep.run(),
      ),
      every(heartbeatMs, 'heartbeat', beat),
      every(statisticsMs, 'statistics', () => counters.tell(database)),
      every(partitionsMs, 'make partitions', () => maintainPartitions(database, emit)),
      ...(tendDefinitions ? [every(minuteMs, 'tend definitions', tendDefinitions)] : []),
      every(minuteMs, 'retention', this.#runRetention),
      ...parts.flatMap(({ task }) => (task ? [every(task.everyMs, task.what, task.run)] : [])),
      ...(lookForEndpoints
        ? [every(lookForEndpointsMs, 'look for endpoints', lookForEndpoints)]
        : []),
    ];
  }

  start(): void {
    for (const task of this.#tasks) task.start();
  }

  async stop(): Promise<void> {
    await Promise.all(this.#tasks.map((task) => task.stop()));
  }

  /**
   * Makes deliveries due that a dead relay held, and corrects misdated ones: a drain may be over before the intervals.
   * An error is only reported.
   */
  async beginDrain(): Promise<void> {
    const { emit } = this.#options;
    await this.#upkeep.reap().catch((error: unknown) => emit(troubleOf('reap', error)));
    await this.#releaseMisdated().catch((error: unknown) =>
      emit(troubleOf('release misdated', error)),
    );
  }

  /**
   * Runs the features' maintenance, and retention if it is due, at once: a drain, and a relay that may sleep, do not run
   * long enough for the intervals.
   */
  async maintain(): Promise<void> {
    for (const { task } of this.#options.parts)
      if (task?.inDrain === 'maintenance') await task.run();
    await this.#runRetention();
  }

  /** Runs the tasks that end a drain, or precede a sleep. A failure is only reported. */
  async endDrain(): Promise<void> {
    const { parts, emit } = this.#options;
    for (const { task } of parts) {
      if (task?.inDrain !== 'end') continue;
      await task.run().catch((error: unknown) => emit(troubleOf(task.what, error)));
    }
  }
}
