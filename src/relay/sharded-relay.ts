// Several databases under one process: a relay for each of them, as if each ran alone. One whose database is away
// when it starts is tried again until it is there; one whose database goes away later waits by itself, as every relay
// does. One whose schema refuses relays of this version stops, and is tried again like one that is away, for the schema
// may be put back. None of this is noticed by the others. Only the destinations are shared: they are opened once, before any relay,
// and closed when the last has stopped, because many of them cannot be opened twice or after they were closed.

import { errorText, RelayTooOldError } from '../errors.js';
import type { Emit, RelayEvent } from '../telemetry/events.js';
import { drainReport, noneDrained } from './drains.js';
import type { DrainLimits, DrainReport } from './drains.js';
import { Relay } from './relay.js';
import type { RelaySetup } from './setup.js';
import { within } from './within.js';

export type EmitOfShard = (event: RelayEvent, shard: string) => void;

export type ShardSetup = { name: string; setup: RelaySetup };

/** Of all shards together, and of each; where one could not be drained, why. */
export type ShardedDrainReport = DrainReport & {
  shards: Record<string, DrainReport | { error: string }>;
};

const firstAgainMs = 1000;
const longestAgainMs = 60_000;
/** At a stop, for destinations that do not close. */
const farewellMs = 1000;

export class ShardedRelay {
  readonly names: readonly string[];
  readonly #shards: readonly ShardSetup[];
  readonly #onEvent: EmitOfShard;
  /** Made anew for each try. */
  readonly #relays = new Map<string, Relay>();
  readonly #running = new Set<string>();
  readonly #refusals = new Map<string, RelayTooOldError>();
  readonly #refusedEverywhere: (refusal: RelayTooOldError) => void;
  /** Resolves when every shard refuses relays of this version: nothing is left to be done. */
  readonly refusedByAll: Promise<RelayTooOldError>;
  readonly #stopping = new AbortController();
  #opened: Promise<void> | undefined;
  #served: Promise<unknown> = Promise.resolve();
  #stopped: Promise<void> | undefined;

  constructor(shards: readonly ShardSetup[], onEvent: EmitOfShard = () => undefined) {
    this.#shards = shards;
    this.names = shards.map(({ name }) => name);
    this.#onEvent = onEvent;
    let refused: (refusal: RelayTooOldError) => void = () => undefined;
    this.refusedByAll = new Promise((resolve) => (refused = resolve));
    this.#refusedEverywhere = refused;
  }

  /** Resolves when each shard is served, or was found to be unavailable and is tried again in the background. */
  async start(): Promise<void> {
    await this.#open();
    const tries = this.#shards.map((shard) => {
      let tried: () => void = () => undefined;
      const once = new Promise<void>((resolve) => (tried = resolve));
      return { once, served: this.#serve(shard, tried) };
    });
    this.#served = Promise.all(tries.map(({ served }) => served));
    await Promise.all(tries.map(({ once }) => once));
  }

  /** Whether a relay runs for this shard; its database may be away again since. */
  isRunning(shard: string): boolean {
    return this.#running.has(shard) && this.#relays.get(shard)?.refusal === undefined;
  }

  /** Why the schema of this shard lets no relay of this version work, if it does not. */
  refusalOf(shard: string): RelayTooOldError | undefined {
    return this.#relays.get(shard)?.refusal ?? this.#refusals.get(shard);
  }

  /** While it runs: waits until nothing of this shard is due, and says what was done meanwhile. */
  async catchUp(shard: string, limits: { maxMs: number }): Promise<DrainReport> {
    const relay = this.isRunning(shard) ? this.#relays.get(shard) : undefined;
    return relay?.catchUp(limits) ?? drainReport(noneDrained, noneDrained, false);
  }

  /** One shot, all shards at once; one that fails keeps none of the others. */
  async drain(limits: DrainLimits): Promise<ShardedDrainReport> {
    try {
      await this.#open();
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
        shards: Object.fromEntries(reports),
      };
    } finally {
      await this.stop();
    }
  }

  /** Finishes or gives back what is held, everywhere at once, within the deadline. */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    await this.#stopped;
  }

  async #drain({ name, setup }: ShardSetup, limits: DrainLimits) {
    const relay = this.#make(name, setup);
    try {
      return await relay.drain(limits);
    } catch (error) {
      return { error: errorText(error) };
    }
  }

  async #serve({ name, setup }: ShardSetup, tried: () => void): Promise<void> {
    for (let againMs = firstAgainMs; !this.#stopping.signal.aborted; againMs *= 2) {
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
      if (!this.#stopping.signal.aborted) {
        this.#noteRefusal(name, error);
        // not all relays of a fleet at once
        const waitMs = Math.round(Math.min(againMs, longestAgainMs) * (0.5 + Math.random() / 2));
        this.#tell({ name: 'shard_unavailable', error: errorText(error), againMs: waitMs }, name);
        tried();
        await this.#wait(waitMs);
      }
    }
    tried();
  }

  /** Until it has ended; it counts as running only until it is refused, whatever it still has to give back. */
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
      // one that never ran has not stopped either
      if (event.name !== 'relay_stopped' || this.#running.has(name)) this.#onEvent(event, name);
    };
    const relay = new Relay({ ...setup, onEvent });
    this.#relays.set(name, relay);
    return relay;
  }

  /** What cannot be opened, such as for want of a library, concerns all shards. */
  async #open(): Promise<void> {
    this.#opened ??= Promise.all(
      Object.values(this.#destinations).map(async (each) => each.open?.(this.#shards.length)),
    ).then(() => undefined);
    await this.#opened;
  }

  /** The same objects in every setup. */
  get #destinations(): RelaySetup['destinations'] {
    return this.#shards[0]?.setup.destinations ?? {};
  }

  async #wait(ms: number): Promise<void> {
    const { signal } = this.#stopping;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      signal.addEventListener('abort', () => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all([...this.#relays.values()].map((relay) => relay.stop()));
    await this.#served;
    this.#running.clear();
    const lastMs = performance.now() + farewellMs;
    for (const [name, destination] of Object.entries(this.#destinations)) {
      try {
        await within(lastMs, Promise.resolve(destination.close?.()));
      } catch (error) {
        const trouble = { what: `close ${name}`, error: errorText(error) };
        for (const shard of this.names) this.#tell({ name: 'trouble', ...trouble }, shard);
      }
    }
  }

  #tell(event: RelayEvent, shard: string): void {
    try {
      this.#onEvent(event, shard);
    } catch (error) {
      // whoever listens must not be able to stop the relays
      process.emitWarning(`onEvent failed: ${errorText(error)}`, 'WaybillWarning');
    }
  }
}
