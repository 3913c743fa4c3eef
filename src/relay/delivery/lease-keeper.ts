// Lease keeper: extends the relay's leases every third of their duration, on separate connections, and reports
// leases that expired and were ended. It also releases leases of claims whose answer was lost, so a slow network
// costs no try.

import { extendLeases, releaseLeases } from '../../database/claims.js';
import type { Database } from '../../database/connection.js';
import type { Emit } from '../../telemetry/events.js';
import type { Pipeline } from './pipeline.js';

export class LeaseKeeper {
  readonly #database: Database;
  readonly #relayId: string;
  readonly #pipelines: readonly Pipeline[];
  readonly #emit: Emit;
  /** Lease id → when its claim failed. */
  readonly #unknown = new Map<string, number>();

  constructor(database: Database, relayId: string, pipelines: readonly Pipeline[], emit: Emit) {
    this.#database = database;
    this.#relayId = relayId;
    this.#pipelines = pipelines;
    this.#emit = emit;
  }

  unknown(leaseId: string): void {
    this.#unknown.set(leaseId, performance.now());
  }

  async extend(): Promise<void> {
    const held = new Map(this.#pipelines.map((pipeline) => [pipeline, pipeline.leaseIds]));
    const leaseIds = [...held.values()].flat();
    if (leaseIds.length === 0) return;
    const still = new Set(await extendLeases(this.#database, this.#relayId, leaseIds));
    for (const [pipeline, ids] of held) {
      const current = new Set(pipeline.leaseIds);
      // a lease that was settled meanwhile is not lost
      for (const id of ids) if (!still.has(id) && current.has(id)) pipeline.lost(id);
    }
  }

  /**
   * The claim may still be running on the server, so the release is repeated until the statement must have timed
   * out.
   */
  async releaseUnknown(): Promise<void> {
    if (this.#unknown.size === 0) return;
    const asked = [...this.#unknown.keys()];
    const nowMs = performance.now();
    const count = await releaseLeases(this.#database, this.#relayId, asked);
    if (count > 0) this.#emit({ name: 'leases_released', count });
    const surelyOverMs = this.#database.options.statementTimeoutMs + 5000;
    for (const id of asked) {
      if (nowMs - (this.#unknown.get(id) ?? nowMs) > surelyOverMs) this.#unknown.delete(id);
    }
  }
}
