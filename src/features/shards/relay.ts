// Sharded relay: runs one independent relay per shard in one process. A shard whose database is unavailable at the
// start is tried again until it answers; one that becomes unavailable later waits like any relay. A shard whose schema
// refuses relays of this version stops and is tried again too, because the schema may be reverted. The shards share
// only their destinations, which are opened once before any relay and closed after the last one, because many cannot be
// opened twice or reopened.

import { delay } from '../../core/delay.js';
import { errorText, RelayBusyError, RelayTooOldError } from '../../core/errors.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit, RelayEvent } from '../../telemetry/events.js';
import { drainReport, noneDrained, resolveDrainLimits } from '../../relay/drains.js';
import type { DrainLimits, DrainReport } from '../../relay/drains.js';
import { Relay } from '../../relay/relay.js';
import type { RelaySetup } from '../../relay/setup.js';
import { within } from '../../relay/within.js';

export type EmitOfShard = (event: RelayEvent, shard: string) => void;

export type ShardSetup = { name: string; setup: RelaySetup };

/** The sum of all shards, and each shard's report, or its error if it could not be drained. */
export type ShardedDrainReport = DrainReport & {
  shards: Record<string, DrainReport | { error: string }>;
};

const firstAgainMs = 1000;
const longestAgainMs = 60_000;
/** How long a stop waits for destinations that do not close. */
const farewellMs = 1000;

export class ShardedRelay {
  readonly names: readonly string[];
  readonly #shards: readonly ShardSetup[];
  readonly #onEvent: EmitOfShard;
  /** One relay per shard; each try makes a new one. */
  readonly #relays = new Map<string, Relay>();
  readonly #running = new Set<string>();
  readonly #refusals = new Map<string, RelayTooOldError>();
  readonly #refusedEverywhere: (refusal: RelayTooOldError) => void;
  /** Resolves when every shard refuses relays of this version, so that there is nothing left to do. */
  readonly refusedByAll: Promise<RelayTooOldError>;
  #stopping = new AbortController();
  #begun = false;
  #opened: Promise<void> | undefined;
  #served: Promise<unknown> = Promise.resolve();
  #stopped: Promise<void> | undefined;
  #beforeStopped: Promise<void> | undefined;

  constructor(shards: readonly ShardSetup[], onEvent: EmitOfShard = () => undefined) {
    this.#shards = shards;
    this.names = shards.map(({ name }) => name);
    this.#onEvent = onEvent;
    let refused: (refusal: RelayTooOldError) => void = () => undefined;
    this.refusedByAll = new Promise((resolve) => (refused = resolve));
    this.#refusedEverywhere = refused;
  }

  /** Resolves when each shard either runs or was found unavailable and is tried again in the background. */
  async start(): Promise<void> {
    const signal = await this.#begin('start');
    const tries = this.#shards.map((shard) => {
      let tried: () => void = () => undefined;
      const once = new Promise<void>((resolve) => (tried = resolve));
      return { once, served: this.#serve(shard, tried, signal) };
    });
    this.#served = Promise.all(tries.map(({ served }) => served));
    await Promise.all(tries.map(({ once }) => once));
  }

  /** Whether a relay runs for this shard. Its database may be unavailable meanwhile. */
  isRunning(shard: string): boolean {
    return this.#running.has(shard) && this.#relays.get(shard)?.refusal === undefined;
  }

  /** The error of a shard whose schema refuses relays of this version. */
  refusalOf(shard: string): RelayTooOldError | undefined {
    return this.#relays.get(shard)?.refusal ?? this.#refusals.get(shard);
  }

  /** On a running relay: waits until nothing of this shard is due, and reports what was delivered meanwhile. */
  async catchUp(shard: string, limits: Pick<DrainLimits, 'maxMs'> = {}): Promise<DrainReport> {
    const relay = this.isRunning(shard) ? this.#relays.get(shard) : undefined;
    return (
      relay?.catchUp(limits) ??
      drainReport(noneDrained, noneDrained, { finished: false, unrouted: 0 })
    );
  }

  /** Drains all shards at once; a shard that fails does not stop the others. */
  async drain(limits: DrainLimits = {}): Promise<ShardedDrainReport> {
    resolveDrainLimits('drain', limits);
    const signal = await this.#begin('drain');
    try {
      const reports = await Promise.all(
        this.#shards.map(async (shard) => [shard.name, await this.#drain(shard, limits)] as const),
      );
      const done = reports.flatMap(([, report]) => ('error' in report ? [] : [report]));
      const sum = (count: (report: DrainReport) => number) =>
        done.reduce((total, report) => total + count(report), 0);
      return {
        processed: sum(({ processed }) => processed),
        succeeded: sum(({ succeeded }) => succeeded),
        failed: sum(({ failed }) => failed),
        released: sum(({ released }) => released),
        finished: done.length === reports.length && done.every(({ finished }) => finished),
        unrouted: sum(({ unrouted }) => unrouted),
        heldCursors: [...new Set(done.flatMap(({ heldCursors }) => heldCursors))],
        shards: Object.fromEntries(reports),
      };
    } finally {
      await this.#end(signal);
    }
  }

  /** Finishes or releases held deliveries of all shards at once, within the deadline. */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    await this.#stopped;
  }

  /**
   * Prepares a run, also after a stop. The state changes synchronously, so that a stop() right after start() finds it.
   */
  async #begin(what: string): Promise<AbortSignal> {
    if (this.#begun && this.#stopped === undefined) throw new RelayBusyError(what);
    this.#begun = true;
    this.#beforeStopped = this.#stopped;
    this.#stopped = undefined;
    this.#opened = undefined;
    this.#stopping = new AbortController();
    const { signal } = this.#stopping;
    try {
      await this.#beforeStopped;
      refuseStopped(signal);
      this.#relays.clear();
      this.#refusals.clear();
      await this.#open();
      refuseStopped(signal);
      return signal;
    } catch (error) {
      await this.#end(signal);
      throw error;
    }
  }

  /** Stops this run, but not a run that began after a stop. */
  async #end(run: AbortSignal): Promise<void> {
    if (!run.aborted) await this.stop();
  }

  async #drain({ name, setup }: ShardSetup, limits: DrainLimits) {
    const relay = this.#make(name, setup);
    try {
      return await relay.drain(limits);
    } catch (error) {
      return { error: errorText(error) };
    }
  }

  async #serve({ name, setup }: ShardSetup, tried: () => void, signal: AbortSignal): Promise<void> {
    for (let againMs = firstAgainMs; !signal.aborted; againMs *= 2) {
      let error: unknown;
      const relay = this.#make(name, setup);
      try {
        await relay.start();
        this.#running.add(name);
        this.#refusals.delete(name);
        tried();
        error = await this.#untilRefused(relay, name);
      } catch (failure) {
        error = failure;
      }
      if (!signal.aborted) {
        this.#noteRefusal(name, error);
        // random, so that the relays of a fleet do not retry all at once
        const waitMs = Math.round(Math.min(againMs, longestAgainMs) * (0.5 + Math.random() / 2));
        this.#tell({ name: 'shard_unavailable', error: errorText(error), againMs: waitMs }, name);
        tried();
        await delay(waitMs, signal);
      }
    }
    tried();
  }

  /**
   * Waits until the relay has ended. It counts as running until it is refused, even if it still releases deliveries.
   */
  async #untilRefused(relay: Relay, name: string): Promise<unknown> {
    const refusal = await relay.ended;
    this.#running.delete(name);
    return refusal;
  }

  #noteRefusal(name: string, error: unknown): void {
    if (!(error instanceof RelayTooOldError)) {
      this.#refusals.delete(name);
      return;
    }
    this.#refusals.set(name, error);
    if (this.#refusals.size === this.names.length) this.#refusedEverywhere(error);
  }

  #make(name: string, setup: RelaySetup): Relay {
    const onEvent: Emit = (event) => {
      // a relay that never ran must not report a stop
      if (event.name !== 'relay_stopped' || this.#running.has(name)) this.#onEvent(event, name);
    };
    const relay = new Relay({ ...setup, onEvent });
    this.#relays.set(name, relay);
    return relay;
  }

  /** An error while opening, such as a missing library, concerns all shards. */
  async #open(): Promise<void> {
    this.#opened ??= Promise.all(
      Object.values(this.#destinations).map(async (each) => each.open?.(this.#shards.length)),
    ).then(() => undefined);
    await this.#opened;
  }

  /** Every setup has the same objects. */
  get #destinations(): RelaySetup['destinations'] {
    return this.#shards[0]?.setup.destinations ?? {};
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    await this.#beforeStopped;
    await Promise.all([...this.#relays.values()].map((relay) => relay.stop()));
    await this.#served;
    this.#running.clear();
    const lastMs = performance.now() + farewellMs;
    for (const [name, destination] of Object.entries(this.#destinations)) {
      try {
        await within(lastMs, Promise.resolve(destination.close?.()));
      } catch (error) {
        const trouble = troubleOf(`close ${name}`, error);
        for (const shard of this.names) this.#tell(trouble, shard);
      }
    }
  }

  #tell(event: RelayEvent, shard: string): void {
    try {
      this.#onEvent(event, shard);
    } catch (error) {
      // an error in a listener must not stop the relays
      process.emitWarning(`onEvent failed: ${errorText(error)}`, 'WaybillWarning');
    }
  }
}

function refuseStopped(signal: AbortSignal): void {
  if (signal.aborted) throw new Error('the relay was stopped while it started');
}
