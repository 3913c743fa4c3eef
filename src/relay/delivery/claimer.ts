// Claimer: claims batches for one destination while there is room for them, and otherwise waits for the poll
// schedule. The window is how many messages may be held. It doubles when the dispatcher runs dry and halves when
// messages wait long, so a fast handler gets large batches and a slow webhook holds no more than it can send soon.

import { randomUUID } from 'node:crypto';

import { claimBatch } from '../../database/claims.js';
import type { Database } from '../../database/connection.js';
import { nextDueMs } from '../../database/wake-up.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import type { CircuitBreaker } from './circuit-breaker.js';
import type { Dispatcher } from './dispatcher.js';
import { ScanStart } from './scan-start.js';
import type { ResolvedRelayOptions } from '../options.js';
import type { TokenBucket } from './rate-limiter.js';
import type { Settler } from './settler.js';
import { Signal } from '../wakeup/signal.js';
import type { PollSchedule } from '../wakeup/poll-schedule.js';

export type ClaimerOptions = {
  name: string;
  database: Database;
  relayId: string;
  destinationId: number;
  concurrency: number;
  /** Messages that the destination takes in one call. */
  callSize: number;
  /** Each claim is shared fairly among tenants. */
  fair: boolean;
  relay: ResolvedRelayOptions;
  schedule: PollSchedule;
  dispatcher: Dispatcher;
  settler: Settler;
  rate: TokenBucket | undefined;
  breaker: CircuitBreaker | undefined;
  emit: Emit;
  /** A claim whose answer was lost: its lease, if it exists, must be released. */
  onUnknownLease: (leaseId: string) => void;
  /** Drain: stop when nothing is due, or after so many messages. */
  drain: { maxMessages: number } | null;
};

const windowBatches = 3;
const maxBackoffMs = 2000;
/** Messages that wait longer than this in the dispatcher should have stayed in the queue, for other relays to claim. */
const longWaitMs = 1000;
/** With fairness, a new tenant waits for the next claim, so claims are small and frequent. Never smaller than this. */
const smallestShare = 25;

export class Claimer {
  readonly #options: ClaimerOptions;
  readonly #scanStart = new ScanStart();
  readonly #room = new Signal();
  readonly #smallestWindow: number;
  readonly #largestWindow: number;
  /** With this much room, claims at once instead of waiting for half of the window. */
  readonly #largestStep: number;
  #window: number;
  /** Claims alternate between the queue and the lanes. */
  #lanesFirst = false;
  /** With fairness: the tenants that were served last, for messages without a key and with a key. */
  #afterTenant: string | null = null;
  #afterLaneTenant: string | null = null;
  #claimed = 0;
  #stopping = false;
  #emptied = false;

  constructor(options: ClaimerOptions) {
    this.#options = options;
    const { concurrency, fair, relay } = options;
    this.#largestStep = fair
      ? Math.min(Math.max(Math.ceil(concurrency / 4), smallestShare), relay.batchSize)
      : relay.batchSize;
    this.#largestWindow = fair
      ? concurrency + 2 * this.#largestStep
      : relay.batchSize * windowBatches;
    this.#smallestWindow = Math.min(Math.max(concurrency, 20), this.#largestWindow);
    this.#window = this.#smallestWindow;
  }

  /** After a drain: nothing was due any more. */
  get emptied(): boolean {
    return this.#emptied;
  }

  /** Outcomes were recorded, or a call ended: there may be room. */
  roomMayBeFree(): void {
    this.#room.raise();
  }

  stop(): void {
    this.#stopping = true;
    this.#room.raise();
    this.#options.schedule.wake();
  }

  async run(idle = false): Promise<void> {
    const { schedule, drain, emit } = this.#options;
    let backoffMs = 0;
    if (idle) await schedule.wait();
    while (!this.#stopping) {
      try {
        const found = await this.#look();
        backoffMs = 0;
        // the byte limit, a quarantined message or another relay may have cut the batch short: while idle, claim
        // once more
        if (found === 'more' || this.#stopping || (found === 'some' && !schedule.active)) continue;
        if (drain !== null && found === 'nothing') {
          if (await this.#everythingEnded()) {
            this.#emptied = true;
            return;
          }
          continue;
        }
        await schedule.wait();
      } catch (error) {
        emit(troubleOf(`claim for ${this.#options.name}`, error));
        backoffMs = Math.min(Math.max(backoffMs * 2, 50), maxBackoffMs);
        this.#room.reset();
        await this.#room.wait(backoffMs);
      }
    }
  }

  /** One claim. `more`: claim again at once; `some`: found less than asked for; `nothing`: nothing was claimed. */
  async #look(): Promise<'more' | 'some' | 'nothing'> {
    const { schedule, relay, drain } = this.#options;
    const limit = await this.#waitForRoom();
    if (this.#stopping) return 'nothing';
    if (this.#left <= 0 || this.#breakerEndsDrain) {
      await this.#everythingEnded();
      // a stop ends the wait early: held deliveries are about to be released
      if (!this.#stopping && !this.#breakerEndsDrain)
        this.#emptied = !(await this.#somethingIsDue());
      this.#stopping = true;
      return 'nothing';
    }
    // the room is gone again, for example because the breaker opened
    if (limit <= 0) return 'more';
    schedule.beforeClaim();
    const messages = await this.#claim(limit);
    const full = messages.length === limit;
    schedule.found(messages.length, full && limit >= relay.batchSize);
    if (messages.length === 0) return 'nothing';
    this.#claimed += messages.length;
    // a claim takes only a share of each lane and tenant, so they may have more
    const shared = this.#isShared || messages.some(({ keyId }) => keyId !== null);
    return full || shared || drain !== null ? 'more' : 'some';
  }

  /** Claims are shared between tenants. */
  get #isShared(): boolean {
    return this.#options.fair || this.#options.relay.tenantIds !== undefined;
  }

  async #claim(limit: number): Promise<ClaimedMessage[]> {
    const { database, relay, relayId, destinationId, name, dispatcher, emit, onUnknownLease } =
      this.#options;
    const leaseId = randomUUID();
    const startedMs = performance.now();
    const scanStart = this.#scanStart.next(startedMs);
    const { leaseMs, batchBytes: maxBytes, tenantIds = null, namespace = null } = relay;
    this.#lanesFirst = !this.#lanesFirst;
    let messages: ClaimedMessage[];
    try {
      messages = await claimBatch(database, {
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
        afterTenant: this.#afterTenant,
        afterLaneTenant: this.#afterLaneTenant,
      });
    } catch (error) {
      // if the driver cannot read the answer, the next one would be the same: after the lease has expired, its messages
      // are claimed alone
      if ((error as { code?: unknown }).code !== 'ERR_STRING_TOO_LONG') onUnknownLease(leaseId);
      throw error;
    }
    const nowMs = performance.now();
    const queued = messages.filter(({ keyId }) => keyId === null);
    this.#scanStart.claimed(scanStart, queued, messages.length === limit, nowMs - startedMs, nowMs);
    if (messages.length === 0) return messages;
    if (this.#isShared) {
      const keyed = messages.filter(({ keyId }) => keyId !== null);
      this.#afterTenant = lastServed(queued, this.#afterTenant);
      this.#afterLaneTenant = lastServed(keyed, this.#afterLaneTenant);
    }
    emit({ name: 'claimed', destination: name, count: messages.length, ms: nowMs - startedMs });
    // the dispatcher ran dry while this batch was being claimed: hold more
    if (this.#claimed > 0 && dispatcher.queued === 0 && messages.length === limit) {
      this.#window = Math.min(this.#window * 2, this.#largestWindow);
    }
    dispatcher.add(leaseId, messages);
    // claim nothing that would have to wait behind a quarantined message
    if (messages[0]?.quarantined) await this.#becomeIdle();
    return messages;
  }

  async #becomeIdle(): Promise<void> {
    const { dispatcher, settler } = this.#options;
    await this.#until(() => dispatcher.idle && settler.held === 0);
  }

  /**
   * Asks whether anything is due, without claiming it. Ignores the relay's tenant and namespace filters.
   */
  async #somethingIsDue(): Promise<boolean> {
    const { database, destinationId } = this.#options;
    const due = await nextDueMs(database);
    return (due.get(destinationId) ?? 1) <= 0;
  }

  async #everythingEnded(): Promise<boolean> {
    const { settler, dispatcher } = this.#options;
    if (settler.held === 0 && dispatcher.idle) return true;
    await this.#until(() => settler.held === 0 && dispatcher.idle);
    return false;
  }

  async #waitForRoom(): Promise<number> {
    const { settler, dispatcher, schedule, relay, rate, breaker, callSize } = this.#options;
    if (dispatcher.waitedMs > longWaitMs) {
      this.#window = Math.max(Math.floor(this.#window / 2), this.#smallestWindow);
    }
    // messages that the rate limit holds back are left for other relays
    const window = () => Math.min(this.#window, rate?.soon ?? this.#window);
    // wait until a batch is worth a round trip; but for a destination with batches, one call that could begin now is
    // enough
    const wanted = () =>
      Math.min(
        this.#largestStep,
        Math.max(1, Math.floor(window() / 2)),
        callSize > 1 && dispatcher.wantsCalls ? callSize : Number.POSITIVE_INFINITY,
      );
    const isProbing = () => breaker?.state === 'half-open';
    const hasRoom = () =>
      this.#breakerEndsDrain ||
      (!dispatcher.hung &&
        !settler.isPausing &&
        this.#breakerRoom > 0 &&
        (isProbing() ? window() > 0 : window() - settler.held >= wanted()) &&
        settler.heldBytes < relay.batchBytes * windowBatches);
    const fullTimer = setTimeout(() => void schedule.stopPolling().catch(() => {}), longWaitMs);
    await this.#until(hasRoom);
    clearTimeout(fullTimer);
    const free = isProbing() ? window() : window() - settler.held;
    return Math.min(relay.batchSize, free, this.#left, this.#breakerRoom);
  }

  /** Messages that a drain may still claim. */
  get #left(): number {
    const { drain } = this.#options;
    return drain === null ? Number.POSITIVE_INFINITY : drain.maxMessages - this.#claimed;
  }

  /** Probes wait until the queue is empty. Calls that hang since before the breaker opened do not delay them. */
  get #breakerRoom(): number {
    const { breaker, dispatcher } = this.#options;
    const room = breaker?.room ?? Number.POSITIVE_INFINITY;
    return room === Number.POSITIVE_INFINITY || dispatcher.queued === 0 ? room : 0;
  }

  /** A drain ends instead of waiting for a destination that fails. */
  get #breakerEndsDrain(): boolean {
    return this.#options.drain !== null && this.#options.breaker?.state === 'open';
  }

  async #until(condition: () => boolean): Promise<void> {
    while (!condition() && !this.#stopping) {
      this.#room.reset();
      if (condition()) return;
      await this.#room.wait(1000);
    }
  }
}

/** The tenant that a claim served last. Claims serve tenants in order, start after `after` and wrap around. */
function lastServed(messages: readonly ClaimedMessage[], after: string | null): string | null {
  if (messages.length === 0) return after;
  const tenants = messages.map(({ tenantId }) => tenantId ?? '');
  const wrapped = tenants.filter((tenant) => byBytes(tenant, after ?? '') <= 0);
  return (wrapped.length > 0 ? wrapped : tenants).reduce((a, b) => (byBytes(a, b) > 0 ? a : b));
}

/** The sort order of the database. */
function byBytes(a: string, b: string): number {
  return Buffer.from(a).compare(Buffer.from(b));
}
