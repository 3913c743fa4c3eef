// Due poller: polls for due deliveries on behalf of all idle destinations of a relay with one query, and wakes those
// that have work. When destinations become idle, it asks for these. At the fallback poll, and on request, it asks for all,
// and reports endpoints with due work that have no pipeline. So idle destinations cost no more queries than one.

import type { Database } from '../../database/connection.js';
import { nextDue, nextDueMs } from '../../database/wake-up.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import type { Signal } from '../signal.js';

type IdleDestination = {
  readonly destinationId: number;
  readonly signal: Signal;
  readonly sinceMs: number;
  timer: NodeJS.Timeout | undefined;
};

export type DuePollerOptions = {
  database: Database;
  fallbackPollMs: number | null;
  /** False for a relay with a filter: a due delivery may not be for it. */
  maySilence: boolean;
  isListening: () => boolean;
  /** Endpoints with due work. Undefined: the relay serves none. */
  onDueEndpoints: () => ((destinationIds: readonly number[]) => void) | undefined;
  emit: Emit;
};

/**
 * A due delivery that the last claim did not find is looked for again after this. Endpoints that become idle are
 * collected for as long.
 */
const heldPollMs = 50;
/** The poll while LISTEN does not work, or for a relay with a filter, if the options give none. */
export const frequentPollMs = 500;
/** The longest pause after a failed query. */
const maxBackoffMs = 2000;
const longestTimerMs = 2_147_483_647;
/** Polls for all destinations take at most this share of the time: after a slow one, the next comes later. */
const pollShare = 0.03;
/** It rests no longer than this, because a poll may also have waited for a lock. */
const longestRestMs = 2000;

export class DuePoller {
  readonly #options: DuePollerOptions;
  readonly #idle = new Map<number, IdleDestination>();
  /** Destinations that became idle since the last query. */
  #fresh = new Set<number>();
  #poll: NodeJS.Timeout | undefined;
  #soon = false;
  #later: NodeJS.Timeout | undefined;
  #looking = false;
  #again = false;
  /** The next query is for all destinations. */
  #all = false;
  #backoffMs = 0;
  /** How long the last query for all destinations took. */
  #polledForMs = 0;
  /** When the next delivery of an endpoint without a pipeline is due. */
  #nextEndpointMs: number | null = null;
  #stopped = false;

  constructor(options: DuePollerOptions) {
    this.#options = options;
  }

  /** Resolves when the signal is raised, from outside or by this poller because a delivery is due. */
  async wait(
    { destinationId, isEndpoint }: { destinationId: number; isEndpoint: boolean },
    signal: Signal,
  ): Promise<void> {
    const idle: IdleDestination = {
      destinationId,
      signal,
      sinceMs: performance.now(),
      timer: undefined,
    };
    this.#idle.set(destinationId, idle);
    this.#fresh.add(destinationId);
    if (isEndpoint) this.#lookLater();
    else this.#lookSoon();
    try {
      await signal.wait(null);
    } finally {
      if (this.#idle.get(destinationId) === idle) this.#idle.delete(destinationId);
      this.#fresh.delete(destinationId);
      clearTimeout(idle.timer);
      if (!this.#isNeeded) this.#cancelPoll();
    }
  }

  /** Polls for all destinations. */
  look(): void {
    this.#all = true;
    this.#lookSoon();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#later);
    this.#cancelPoll();
  }

  get #isNeeded(): boolean {
    if (this.#stopped) return false;
    return this.#idle.size > 0 || this.#options.onDueEndpoints() !== undefined;
  }

  /** Polls at the end of this turn of the event loop, once for all destinations that become idle in it. */
  #lookSoon(): void {
    if (this.#soon || !this.#isNeeded) return;
    this.#soon = true;
    setImmediate(() => {
      this.#soon = false;
      void this.#look();
    });
  }

  /** For endpoints that become idle: with thousands of them, most are closed by then to make room for others. */
  #lookLater(): void {
    this.#later ??= setTimeout(() => {
      this.#later = undefined;
      void this.#look();
    }, heldPollMs);
  }

  async #look(): Promise<void> {
    // stopped since it was asked for: the connections may be closed by now
    if (this.#stopped) return;
    if (this.#looking) {
      this.#again = true;
      return;
    }
    this.#looking = true;
    try {
      do {
        this.#again = false;
        if (this.#all) await this.#lookForAll();
        else await this.#lookForFresh();
      } while (this.#again && !this.#stopped);
      this.#backoffMs = 0;
    } catch (error) {
      if (this.#stopped) return;
      this.#all = true;
      this.#options.emit(troubleOf('look for work', error));
      this.#backoffMs = Math.min(Math.max(this.#backoffMs * 2, 50), maxBackoffMs);
    }
    this.#looking = false;
    if (this.#backoffMs > 0 || this.#poll === undefined) this.#schedule();
  }

  /** Undefined while there is none: the next look schedules a new one. */
  #cancelPoll(): void {
    clearTimeout(this.#poll);
    this.#poll = undefined;
  }

  #schedule(): void {
    this.#cancelPoll();
    const pollMs = this.#backoffMs > 0 ? this.#backoffMs : this.#pollMs();
    const dueMs = this.#nextEndpointMs ?? Number.POSITIVE_INFINITY;
    const waitMs = Math.max(Math.min(pollMs ?? Number.POSITIVE_INFINITY, dueMs), this.#restMs);
    if (!Number.isFinite(waitMs) || !this.#isNeeded) return;
    this.#poll = setTimeout(
      () => {
        this.#poll = undefined;
        this.#all = true;
        void this.#look();
      },
      Math.min(waitMs, longestTimerMs),
    );
  }

  get #restMs(): number {
    return Math.min(this.#polledForMs / pollShare, longestRestMs);
  }

  #pollMs(): number | null {
    const { fallbackPollMs, maySilence, isListening } = this.#options;
    if (fallbackPollMs !== null) return fallbackPollMs;
    if (!maySilence) return heldPollMs;
    // without a listener, the relay has nothing but the poll
    return isListening() ? null : frequentPollMs;
  }

  async #lookForFresh(): Promise<void> {
    const asked = [...this.#fresh].map((id) => this.#idle.get(id));
    this.#fresh = new Set();
    if (asked.length === 0) return;
    const ids = asked.flatMap((idle) => (idle === undefined ? [] : [idle.destinationId]));
    const due = await nextDueMs(this.#options.database, ids);
    for (const idle of asked) {
      if (idle === undefined || this.#idle.get(idle.destinationId) !== idle) continue;
      const dueMs = due.get(idle.destinationId);
      if (dueMs !== undefined) this.#wake(idle, dueMs);
    }
  }

  async #lookForAll(): Promise<void> {
    this.#all = false;
    this.#fresh = new Set();
    this.#cancelPoll();
    const startedMs = performance.now();
    const asked = new Set(this.#idle.values());
    const due = await nextDue(this.#options.database);
    this.#polledForMs = performance.now() - startedMs;
    const endpoints: number[] = [];
    let nextMs = Number.POSITIVE_INFINITY;
    for (const { id, ms, isEndpoint } of due) {
      const idle = this.#idle.get(id);
      if (idle !== undefined && asked.has(idle)) this.#wake(idle, ms);
      else if (isEndpoint && ms <= 0) endpoints.push(id);
      else if (isEndpoint) nextMs = Math.min(nextMs, ms);
    }
    this.#nextEndpointMs = Number.isFinite(nextMs) ? Math.max(nextMs, 1) : null;
    const onDue = this.#options.onDueEndpoints();
    if (onDue === undefined) this.#nextEndpointMs = null;
    else if (endpoints.length > 0) onDue(endpoints);
  }

  #wake(idle: IdleDestination, dueMs: number): void {
    clearTimeout(idle.timer);
    // a delivery that is due, but was not found by the last claim, is being claimed by another relay
    const { maySilence, fallbackPollMs } = this.#options;
    const heldMs = maySilence ? heldPollMs : (fallbackPollMs ?? heldPollMs);
    const restMs = idle.sinceMs + heldMs - performance.now();
    const waitMs = dueMs > 0 ? Math.max(dueMs, 1) : restMs;
    if (waitMs <= 0) idle.signal.raise();
    else idle.timer = setTimeout(() => idle.signal.raise(), Math.min(waitMs, longestTimerMs));
  }
}
