// Claimer: claims batches for one destination and hands them on. The claim gate says when there is room for a batch,
// the poll schedule when to look again after a claim that found nothing.

import { randomUUID } from 'node:crypto';

import { claimBatch } from '../../database/claims.js';
import type { ClaimRequest } from '../../database/claims.js';
import type { Database } from '../../database/connection.js';
import { nextDueMs } from '../../database/wake-up.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import type { ResolvedRelayOptions } from '../options.js';
import type { PollSchedule } from '../wakeup/poll-schedule.js';
import { longWaitMs } from './claim-gate.js';
import type { ClaimGate } from './claim-gate.js';
import type { DrainLimit } from './drain-limit.js';
import { ScanStart } from './scan-start.js';
import { TenantTurns } from './tenant-turns.js';

export type ClaimerOptions = {
  name: string;
  database: Database;
  /** Sends claims together with those of other pipelines. Without it, each claim is a statement of its own. */
  claim?: (request: ClaimRequest) => Promise<ClaimedMessage[]>;
  relayId: string;
  destinationId: number;
  relay: ResolvedRelayOptions;
  /** Each claim is shared fairly among tenants. */
  fair: boolean;
  /** Older messages are not sent. Default: all are. */
  expireAfterMs?: number | null;
  gate: ClaimGate;
  schedule: PollSchedule;
  /** Takes a batch over. The next claim waits for the promise. */
  deliver: (leaseId: string, messages: readonly ClaimedMessage[]) => Promise<void>;
  /** A claim whose answer was lost: its lease, if it exists, must be released. */
  onUnknownLease: (leaseId: string) => void;
  emit: Emit;
};

const maxBackoffMs = 2000;

export class Claimer {
  readonly #options: ClaimerOptions;
  readonly #scanStart = new ScanStart();
  /** Set if claims are shared between tenants. */
  readonly #turns: TenantTurns | undefined;
  /** Claims alternate between the queue and the lanes. */
  #lanesFirst = false;
  #stopping = false;

  constructor(options: ClaimerOptions) {
    this.#options = options;
    const isShared = options.fair || options.relay.tenantIds !== undefined;
    this.#turns = isShared ? new TenantTurns() : undefined;
  }

  stop(): void {
    this.#stopping = true;
    this.#options.gate.stop();
    this.#options.schedule.wake();
  }

  /** Claims whenever there is room and may be work, until it is stopped. */
  async run(): Promise<void> {
    const { schedule, relay } = this.#options;
    await this.#repeat(async () => {
      const limit = await this.#room();
      if (limit === 0 || this.#stopping) return;
      schedule.beforeClaim();
      const startedMs = performance.now();
      const messages = await this.#claim(limit);
      const full = messages.length === limit;
      schedule.found(
        messages.length,
        full && limit >= relay.batchSize,
        performance.now() - startedMs,
      );
      if (full || this.#mayHaveMore(messages) || this.#stopping) return;
      // The byte limit, a quarantined message or another relay may have cut the batch short: while idle, claim once
      // more. For endpoints, the due poller finds out, with one query for many of them.
      if (messages.length > 0 && !schedule.active && !schedule.isEndpoint) return;
      await schedule.wait();
    });
  }

  /** Claims until nothing is due, or until the limit. Returns whether nothing was due at the end. */
  async drain(limit: DrainLimit): Promise<boolean> {
    const { gate } = this.#options;
    let emptied = false;
    await this.#repeat(async () => {
      const room = await gate.room();
      if (this.#stopping) return;
      if (limit.isOver) {
        await gate.until(() => gate.isEmpty);
        // a stop ends the wait early: held deliveries are about to be released
        if (!this.#stopping && !limit.isFailing) emptied = !(await this.#isSomethingDue());
        this.#stopping = true;
      } else if (room > 0) {
        // deliveries that were in hand when the claim began may be due again
        const wasEmpty = gate.isEmpty;
        if ((await this.#claim(room)).length > 0) return;
        emptied = wasEmpty;
        this.#stopping ||= emptied;
        await gate.until(() => gate.isEmpty);
      }
    });
    return emptied;
  }

  /** Repeats a step until it is stopped; after an error, with a growing pause. */
  async #repeat(step: () => Promise<void>): Promise<void> {
    const { name, gate, emit } = this.#options;
    let backoffMs = 0;
    while (!this.#stopping) {
      try {
        await step();
        backoffMs = 0;
      } catch (error) {
        emit(troubleOf(`claim for ${name}`, error));
        backoffMs = Math.min(Math.max(backoffMs * 2, 50), maxBackoffMs);
        await gate.pause(backoffMs);
      }
    }
  }

  /** Waits for room. If that takes long, producers must be able to notify other relays. */
  async #room(): Promise<number> {
    const { gate, schedule } = this.#options;
    const fullTimer = setTimeout(() => void schedule.stopPolling().catch(() => {}), longWaitMs);
    const room = await gate.room();
    clearTimeout(fullTimer);
    return room;
  }

  /** A claim takes only a share of each lane and tenant. */
  #mayHaveMore(messages: readonly ClaimedMessage[]): boolean {
    if (messages.length === 0) return false;
    return this.#turns !== undefined || messages.some(({ keyId }) => keyId !== null);
  }

  async #claim(limit: number): Promise<readonly ClaimedMessage[]> {
    const { name, gate, schedule, deliver, emit } = this.#options;
    const leaseId = randomUUID();
    const startedMs = performance.now();
    const from = this.#scanStart.next(startedMs);
    const messages = await this.#query(leaseId, limit, from);
    const nowMs = performance.now();
    const scan = {
      from,
      queued: messages.filter(({ keyId }) => keyId === null),
      full: messages.length === limit,
      polling: schedule.active,
      tookMs: nowMs - startedMs,
    };
    this.#scanStart.claimed(scan, nowMs);
    if (messages.length === 0) return messages;
    this.#turns?.served(messages);
    gate.claimed(messages.length, limit);
    emit({ name: 'claimed', destination: name, count: messages.length, ms: nowMs - startedMs });
    await deliver(leaseId, messages);
    return messages;
  }

  async #query(
    leaseId: string,
    limit: number,
    scanStart: ReturnType<ScanStart['next']>,
  ): Promise<ClaimedMessage[]> {
    const { database, relay, relayId, destinationId, onUnknownLease } = this.#options;
    const { expireAfterMs = null } = this.#options;
    const { claim = (request: ClaimRequest) => claimBatch(database, request) } = this.#options;
    const { leaseMs, batchBytes: maxBytes, tenantIds = null, namespace = null } = relay;
    this.#lanesFirst = !this.#lanesFirst;
    try {
      return await claim({
        destinationId,
        leaseId,
        relayId,
        limit,
        maxBytes,
        leaseMs,
        tenantIds,
        namespace,
        scanStart,
        lanesFirst: this.#lanesFirst,
        afterTenant: this.#turns?.afterTenant ?? null,
        afterLaneTenant: this.#turns?.afterLaneTenant ?? null,
        expireAfterMs,
      });
    } catch (error) {
      // The answer was too long for the driver. Releasing the lease would only repeat that. It is left to expire; then
      // its messages are quarantined and claimed one at a time.
      if ((error as { code?: unknown }).code !== 'ERR_STRING_TOO_LONG') onUnknownLease(leaseId);
      throw error;
    }
  }

  /** Asks whether anything is due, without claiming it. Ignores the relay's tenant and namespace filters. */
  async #isSomethingDue(): Promise<boolean> {
    const { database, destinationId } = this.#options;
    const due = await nextDueMs(database, [destinationId]);
    return (due.get(destinationId) ?? 1) <= 0;
  }
}
