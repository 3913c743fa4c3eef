// Brings work in: claims batches for one destination whenever there is room for them, and otherwise waits
// for the sleeper to say that another look is worth it. No claim without room: how much may be held grows
// while the dispatcher runs dry and shrinks while messages wait long in it, so that a fast handler gets
// large batches and a slow webhook holds no more than it can send soon.

import { randomUUID } from 'node:crypto';

import { claimBatch } from '../database/claims.js';
import type { Database } from '../database/connection.js';
import { nextDueMs } from '../database/doorbells.js';
import { errorText } from '../errors.js';
import type { ClaimedMessage } from '../model/claimed-message.js';
import type { Emit } from '../telemetry/events.js';
import type { Breaker } from './breaker.js';
import type { Dispatcher } from './dispatcher.js';
import { Floor } from './floor.js';
import type { ResolvedRelayOptions } from './options.js';
import type { TokenBucket } from './rate.js';
import type { Settler } from './settler.js';
import { Signal } from './signal.js';
import type { Sleeper } from './sleeper.js';

export type ClaimerOptions = {
  name: string;
  database: Database;
  relayId: string;
  destinationId: number;
  concurrency: number;
  /** How many messages the destination takes in one call. */
  callSize: number;
  /** Tenants take turns. */
  fair: boolean;
  relay: ResolvedRelayOptions;
  sleeper: Sleeper;
  dispatcher: Dispatcher;
  settler: Settler;
  rate: TokenBucket | undefined;
  breaker: Breaker | undefined;
  emit: Emit;
  /** A claim whose outcome is unknown: its lease, if it exists, must be given back. */
  onUnknownLease: (leaseId: string) => void;
  /** One-shot: stop when nothing is due, or after so many messages. */
  drain: { maxMessages: number } | null;
};

const windowBatches = 3;
const maxBackoffMs = 2000;
/** Messages that wait longer than this for their turn should have stayed in the queue, for others to take. */
const longWaitMs = 1000;
/** Where tenants take turns, a newcomer waits for the next claim: so claims are small, and come often. */
const smallestTurn = 25;

export class Claimer {
  readonly #options: ClaimerOptions;
  readonly #floor = new Floor();
  readonly #room = new Signal();
  readonly #smallestWindow: number;
  readonly #largestWindow: number;
  /** So much room is worth a claim, whatever the window is. */
  readonly #largestStep: number;
  #window: number;
  /** The queue and the lanes are looked at in turn. */
  #lanesFirst = false;
  #afterTenant: string | null = null;
  #claimed = 0;
  #stopping = false;
  #emptied = false;

  constructor(options: ClaimerOptions) {
    this.#options = options;
    const { concurrency, fair, relay } = options;
    this.#largestStep = fair
      ? Math.min(Math.max(Math.ceil(concurrency / 4), smallestTurn), relay.batchSize)
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

  /** Endings were recorded, or a delivery ended: there may be room. */
  roomMayBeFree(): void {
    this.#room.raise();
  }

  stop(): void {
    this.#stopping = true;
    this.#room.raise();
    this.#options.sleeper.nudge();
  }

  async run(asleep = false): Promise<void> {
    const { sleeper, drain, emit } = this.#options;
    let backoffMs = 0;
    if (asleep) await sleeper.wait();
    while (!this.#stopping) {
      try {
        const found = await this.#look();
        backoffMs = 0;
        // bytes, a suspect or another relay may have cut a batch short: asleep, one more look makes sure
        if (found === 'more' || this.#stopping || (found === 'some' && !sleeper.awake)) continue;
        if (drain !== null && found === 'nothing') {
          if (await this.#everythingEnded()) {
            this.#emptied = true;
            return;
          }
          continue;
        }
        await sleeper.wait();
      } catch (error) {
        emit({
          name: 'trouble',
          what: `claim for ${this.#options.name}`,
          error: errorText(error),
        });
        backoffMs = Math.min(Math.max(backoffMs * 2, 50), maxBackoffMs);
        this.#room.reset();
        await this.#room.wait(backoffMs);
      }
    }
  }

  /** One claim. `more`: look again at once; `some`: found less than asked for; `nothing`: the queue is empty. */
  async #look(): Promise<'more' | 'some' | 'nothing'> {
    const { sleeper, relay, drain } = this.#options;
    const limit = await this.#waitForRoom();
    if (this.#stopping) return 'nothing';
    if (this.#left <= 0 || this.#waitsInVain) {
      await this.#everythingEnded();
      // told to stop, it has not waited: what it still holds is due again in a moment
      if (!this.#stopping && !this.#waitsInVain) this.#emptied = !(await this.#somethingIsDue());
      this.#stopping = true;
      return 'nothing';
    }
    // the room was taken at the last moment, as by a breaker that opened
    if (limit <= 0) return 'more';
    sleeper.aboutToLook();
    const messages = await this.#claim(limit);
    const full = messages.length === limit;
    sleeper.found(messages.length, full && limit >= relay.batchSize);
    if (messages.length === 0) return 'nothing';
    this.#claimed += messages.length;
    // lanes and tenants get a share each, and may have more
    const shared = this.#takesTurns || messages.some(({ streamId }) => streamId !== null);
    return full || shared || drain !== null ? 'more' : 'some';
  }

  get #takesTurns(): boolean {
    return this.#options.fair || this.#options.relay.tenantIds !== undefined;
  }

  async #claim(limit: number): Promise<ClaimedMessage[]> {
    const { database, relay, relayId, destinationId, name, dispatcher, emit, onUnknownLease } =
      this.#options;
    const leaseId = randomUUID();
    const startedMs = performance.now();
    const floor = this.#floor.next(startedMs);
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
        floor,
        lanesFirst: this.#lanesFirst,
        afterTenant: this.#afterTenant,
      });
    } catch (error) {
      onUnknownLease(leaseId);
      throw error;
    }
    const nowMs = performance.now();
    const queued = messages.filter(({ streamId }) => streamId === null);
    this.#floor.claimed(floor, queued, messages.length === limit, nowMs - startedMs, nowMs);
    if (messages.length === 0) return messages;
    if (this.#takesTurns) this.#afterTenant = lastTurn(messages, this.#afterTenant ?? '');
    emit({ name: 'claimed', destination: name, count: messages.length, ms: nowMs - startedMs });
    // the dispatcher ran dry while this batch was on its way: hold more
    if (this.#claimed > 0 && dispatcher.queued === 0 && messages.length === limit) {
      this.#window = Math.min(this.#window * 2, this.#largestWindow);
    }
    dispatcher.add(leaseId, messages);
    // a suspect: claim nothing that would have to wait behind it
    if (messages[0]?.alone) await this.#becomeIdle();
    return messages;
  }

  async #becomeIdle(): Promise<void> {
    const { dispatcher, settler } = this.#options;
    await this.#until(() => dispatcher.idle && settler.held === 0);
  }

  /** Not by a claim: it would take what is not to be sent. For a drain with a filter, also what others wait for. */
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
    const { settler, dispatcher, sleeper, relay, rate, breaker, callSize } = this.#options;
    if (dispatcher.waitedMs > longWaitMs) {
      this.#window = Math.max(Math.floor(this.#window / 2), this.#smallestWindow);
    }
    // what a rate limit does not let through soon is for others to take
    const window = () => Math.min(this.#window, rate?.soon ?? this.#window);
    // ask for a batch worth a round trip, not for every single place that becomes free; but a call that could begin
    // now, with all that it takes, is worth one
    const wanted = () =>
      Math.min(
        this.#largestStep,
        Math.max(1, Math.floor(window() / 2)),
        callSize > 1 && dispatcher.wantsCalls ? callSize : Number.POSITIVE_INFINITY,
      );
    const isProbing = () => breaker?.state === 'half-open';
    const hasRoom = () =>
      this.#waitsInVain ||
      (!dispatcher.hung &&
        !settler.isPausing &&
        this.#breakerRoom > 0 &&
        (isProbing() ? window() > 0 : window() - settler.held >= wanted()) &&
        settler.heldBytes < relay.batchBytes * windowBatches);
    const full = setTimeout(() => void sleeper.stopSilencing().catch(() => {}), longWaitMs);
    await this.#until(hasRoom);
    clearTimeout(full);
    const free = isProbing() ? window() : window() - settler.held;
    return Math.min(relay.batchSize, free, this.#left, this.#breakerRoom);
  }

  /** What a drain may still take. */
  get #left(): number {
    const { drain } = this.#options;
    return drain === null ? Number.POSITIVE_INFINITY : drain.maxMessages - this.#claimed;
  }

  /** Probes go when nothing waits before them; calls that hang since before the breaker opened are no hindrance. */
  get #breakerRoom(): number {
    const { breaker, dispatcher } = this.#options;
    const room = breaker?.room ?? Number.POSITIVE_INFINITY;
    return room === Number.POSITIVE_INFINITY || dispatcher.queued === 0 ? room : 0;
  }

  /** A drain ends instead of waiting for a destination that fails. */
  get #waitsInVain(): boolean {
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

/** Tenants are served in order, beginning behind the last and then from the first: whose turn was the last one? */
function lastTurn(messages: readonly ClaimedMessage[], after: string): string {
  const tenants = messages.map(({ tenantId }) => tenantId ?? '');
  const begunAnew = tenants.filter((tenant) => byBytes(tenant, after) <= 0);
  return (begunAnew.length > 0 ? begunAnew : tenants).reduce((a, b) => (byBytes(a, b) > 0 ? a : b));
}

/** As the database sorts them. */
function byBytes(a: string, b: string): number {
  return Buffer.from(a).compare(Buffer.from(b));
}
