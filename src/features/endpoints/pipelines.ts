// Endpoint pipelines: an endpoint has a pipeline only while it has work. It is opened by a notification or when the due
// poller finds due work, and closed when it has been quiet for a while, or sooner if others need its place. A relay
// knows nothing of an endpoint without a pipeline, so these cost it nothing. Changes are looked for on a notification
// and at an interval (relay/upkeep/chores.ts), with one small query. An endpoint whose secret cannot be opened has no
// pipeline: its deliveries wait, and the problem is reported until it is solved.

import type { Database } from '../../database/connection.js';
import { nextDue } from '../../database/wake-up.js';
import { readEndpointChanges, readEndpoints, syncEndpointSettings } from './database.js';
import type { EndpointChange, EndpointRow } from './database.js';
import { errorText } from '../../core/errors.js';
import type { SecretKey } from '../../core/sealed-secret.js';
import { secretKeys } from '../../core/secret-keys.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import { EndpointDestination, endpointWebhook, limitsOf } from './destination.js';
import type { ResolvedEndpointOptions } from './options.js';
import { SharedPools } from './shared-pools.js';
import { SharedTokens } from './shared-tokens.js';
import type { Pipeline } from '../../relay/delivery/pipeline.js';
import type { Pipelines } from '../../relay/delivery/pipelines.js';
import type { RelaySetup } from '../../relay/setup.js';
import type { EndpointsWakeUp, WakeUp } from '../../relay/wakeup/wake-up.js';

type Open = {
  version: number;
  readonly name: string;
  readonly destination: EndpointDestination;
  readonly pipeline: Pipeline;
};

type Problem = { readonly name: string; readonly problem: string };

export type EndpointPipelinesOptions = {
  database: Database;
  endpoints: ResolvedEndpointOptions;
  /** Called each time, because a key file may be replaced while the relay runs. */
  keys: () => readonly SecretKey[];
  pipelines: Pipelines;
  wakeUp: Pick<WakeUp, 'look'>;
  /** The relay's concurrency limit. */
  concurrency: number;
  emit: Emit;
};

/** How long a pipeline may have nothing to do before it is closed. */
const quietMs = 30_000;
/**
 * Pipelines at once, for each slot of the relay: an endpoint has several calls at once. With more pipelines, each would
 * take longer, and fewer leases would be complete when their outcomes are recorded.
 */
const openPerSlot = 0.5;
const fewestOpen = 100;
/** Endpoints that are read with one query. */
const readAtOnce = 100;
/** Free places are collected for this long, so that one query fills many. */
const collectMs = 5;
/** How often all pipelines are counted: there may be thousands, and room is looked for every few milliseconds. */
const countMs = 100;
/** After an error of the database, endpoints are opened again after this. */
const failedMs = 1000;
/** Ids that turned out not to be endpoints are remembered up to this number. */
const mostForeign = 10_000;
/** Endpoints with a problem are tried again this often. */
const againMs = 10_000;
const shownNames = 3;

export class EndpointPipelines implements EndpointsWakeUp {
  readonly #options: EndpointPipelinesOptions;
  readonly #most: number;
  readonly #pools = new SharedPools();
  readonly #parts = { openPool: this.#pools.open, tokensOf: new SharedTokens().of };
  readonly #open = new Map<number, Open>();
  readonly #closing = new Map<number, Promise<void>>();
  readonly #problems = new Map<number, Problem>();
  /** Destinations that may be endpoints with work, in the order in which they were woken. */
  readonly #wanted = new Set<number>();
  /** Endpoints that are being opened: whether they have changed since their row was read. */
  readonly #reading = new Map<number, boolean>();
  /** Removed endpoints, and destinations that are not endpoints. */
  readonly #foreign = new Set<number>();
  /** Endpoints whose pipelines had nothing to do when they were last seen, the longest first. */
  readonly #idle = new Set<number>();
  /** Pipelines that wait for a rate limit, a breaker, a slow call or a rest: they may do so for long, and hold no slot. */
  readonly #heldBack = new Recent(
    () => [...this.#open.values()].filter(({ pipeline }) => pipeline.isHeldBack).length,
    countMs,
  );
  /** The changes of the last look, to skip repeated ones: after a restore on another server, old ones may look new. */
  #last = new Map<number, number>();
  #seen: string | null = null;
  #looking: Promise<void> = Promise.resolve();
  #opening = false;
  #timer: NodeJS.Timeout | undefined;
  #stopping = false;
  #retriedMs = performance.now();
  #told = '';

  constructor(options: EndpointPipelinesOptions) {
    this.#options = options;
    this.#most = Math.max(options.concurrency * openPerSlot, fewestOpen);
  }

  /** Why endpoints cannot be served: one text per reason. */
  get problems(): string[] {
    const names = new Map<string, string[]>();
    for (const { name, problem } of this.#problems.values())
      names.set(problem, [...(names.get(problem) ?? []), name]);
    return [...names].map(([problem, waiting]) => {
      const shown = waiting.slice(0, shownNames).join(', ');
      const more = waiting.length - shownNames;
      const who = `${shown}${more > 0 ? ` and ${more} more` : ''}`;
      return `endpoints are not served (${who}): ${problem}`;
    });
  }

  /** Checks for changes, one check at a time, and closes pipelines that have been quiet for long. */
  async look(): Promise<void> {
    const look = () => this.#look();
    this.#looking = this.#looking.then(look, look);
    await this.#looking;
  }

  /** For a drain: opens all endpoints that have due deliveries. */
  async openDue(): Promise<void> {
    const { database } = this.#options;
    const due = (await nextDue(database)).filter(({ ms, isEndpoint }) => isEndpoint && ms <= 0);
    for (const row of await readEndpoints(
      database,
      due.map(({ id }) => id),
    ))
      await this.#openOne(row);
    this.#tellProblems();
  }

  wake(destinationIds: readonly number[]): void {
    for (const id of destinationIds)
      if (!this.#open.has(id) && !this.#problems.has(id) && !this.#foreign.has(id))
        this.#wanted.add(id);
    void this.#openWanted();
  }

  becameIdle(destinationId: number): void {
    this.#idle.delete(destinationId);
    this.#idle.add(destinationId);
    this.#openSoon();
  }

  /** Opens and changes no further endpoints. The relay stops the pipelines itself. */
  async stop(): Promise<void> {
    this.#stopping = true;
    clearTimeout(this.#timer);
    await this.#looking.catch(() => {});
    await Promise.all(this.#closing.values());
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map(({ destination }) => destination.close()));
    await this.#pools.close();
  }

  async #look(): Promise<void> {
    if (this.#stopping) return;
    const { database, emit, wakeUp } = this.#options;
    const isFirst = this.#seen === null;
    const { seen, changes } = await readEndpointChanges(database, this.#seen);
    const news = changes.filter(
      ({ destinationId, version }) => this.#last.get(destinationId) !== version,
    );
    await this.#apply(news);
    this.#last = new Map(changes.map(({ destinationId, version }) => [destinationId, version]));
    this.#seen = seen;
    if (news.length > 0) emit({ name: 'endpoints_changed', ...countsOf(news) });
    if (isFirst) wakeUp.look();
    this.#retryProblems();
    this.#closeQuiet();
    this.#tellProblems();
  }

  /** Gives open pipelines the new address and secrets, and closes those of removed endpoints. */
  async #apply(changes: readonly EndpointChange[]): Promise<void> {
    const { database } = this.#options;
    for (const { destinationId, removed } of changes) {
      if (this.#reading.has(destinationId)) this.#reading.set(destinationId, true);
      const hadProblem = this.#problems.delete(destinationId);
      if (removed) {
        this.#wanted.delete(destinationId);
        this.#end(destinationId);
      } else if (hadProblem) this.#wanted.add(destinationId);
    }
    const changed = changes
      .filter(({ destinationId, version }) => {
        const open = this.#open.get(destinationId);
        return open !== undefined && open.version !== version;
      })
      .map(({ destinationId }) => destinationId);
    if (changed.length > 0)
      for (const row of await readEndpoints(database, changed)) await this.#replace(row);
    if (this.#wanted.size > 0) void this.#openWanted();
  }

  async #replace(row: EndpointRow): Promise<void> {
    const { endpoints, keys } = this.#options;
    const open = this.#open.get(row.destinationId);
    if (open === undefined || open.version > row.version || this.#stopping) return;
    if (open.destination.limits !== limitsOf(row)) {
      // a pipeline keeps its limits: another one takes over when this one has ended
      this.#wanted.add(row.destinationId);
      return this.#end(row.destinationId);
    }
    try {
      await open.destination.replace(endpointWebhook(row, keys(), endpoints, this.#parts));
      open.version = row.version;
    } catch (error) {
      this.#note(row, error);
      this.#end(row.destinationId);
    }
  }

  #retryProblems(): void {
    if (performance.now() - this.#retriedMs < againMs) return;
    this.#retriedMs = performance.now();
    for (const id of this.#problems.keys()) this.#wanted.add(id);
    if (this.#wanted.size > 0) void this.#openWanted();
  }

  /** There may be room again. */
  #openSoon(): void {
    this.#openAfter(collectMs);
  }

  #openAfter(ms: number): void {
    if (this.#wanted.size === 0 || this.#stopping) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#openWanted();
    }, ms);
  }

  /** Opens pipelines while there is room; the rest waits until one becomes idle or is closed. One run at a time. */
  async #openWanted(): Promise<void> {
    if (this.#opening) return;
    this.#opening = true;
    try {
      for (;;) {
        const ids = this.#stopping ? [] : this.#nextWanted();
        if (ids.length === 0) break;
        await this.#openAll(ids);
      }
      this.#tellProblems();
    } catch (error) {
      this.#options.emit(troubleOf('open endpoints', error));
      this.#openAfter(failedMs);
    } finally {
      this.#opening = false;
      this.#reading.clear();
    }
  }

  async #openAll(ids: readonly number[]): Promise<void> {
    const { database } = this.#options;
    for (const id of ids) this.#reading.set(id, false);
    const rows = await readEndpoints(database, ids);
    for (const id of ids) this.#wanted.delete(id);
    this.#noteForeign(ids, rows);
    for (const row of rows) await this.#openOne(row);
    const changed = ids.filter((id) => this.#reading.get(id));
    for (const id of ids) this.#reading.delete(id);
    if (changed.length === 0) return;
    const found = await readEndpoints(database, changed);
    for (const row of found) await this.#replace(row);
    const left = new Set(found.map(({ destinationId }) => destinationId));
    for (const id of changed) if (!left.has(id)) this.#end(id);
  }

  /** Those that there is room for. A pipeline that is still releasing its deliveries is opened when it has ended. */
  #nextWanted(): number[] {
    const ids: number[] = [];
    if (this.#wanted.size === 0) return ids;
    const room = this.#makeRoom();
    // wait for more room: a query for each single place would cost too much
    if (room < Math.min(this.#wanted.size, this.#most / 10)) return ids;
    const most = Math.min(room, readAtOnce);
    for (const id of this.#wanted) {
      if (ids.length >= most) break;
      if (!this.#closing.has(id)) ids.push(id);
    }
    return ids;
  }

  /** Destinations without a row are removed endpoints, or destinations of other relays: they are not asked for again. */
  #noteForeign(ids: readonly number[], rows: readonly EndpointRow[]): void {
    const found = new Set(rows.map(({ destinationId }) => destinationId));
    if (this.#foreign.size > mostForeign) this.#foreign.clear();
    for (const id of ids) if (!found.has(id)) this.#foreign.add(id);
  }

  /** How many pipelines may be opened now. Closes idle ones for it, those first that have been idle for the longest. */
  #makeRoom(): number {
    const heldBack = this.#heldBack.get();
    const room = () => this.#most + heldBack - this.#open.size - this.#closing.size;
    for (const id of this.#idle) {
      if (room() >= readAtOnce) break;
      this.#idle.delete(id);
      if (this.#open.get(id)?.pipeline.quietSinceMs !== undefined) this.#end(id);
    }
    return room();
  }

  #closeQuiet(): void {
    const quietUntilMs = performance.now() - quietMs;
    for (const [id, { pipeline }] of this.#open)
      if ((pipeline.quietSinceMs ?? Number.POSITIVE_INFINITY) < quietUntilMs) this.#end(id);
  }

  async #openOne(row: EndpointRow): Promise<void> {
    const { endpoints, keys, pipelines } = this.#options;
    const { destinationId, name, version } = row;
    if (this.#stopping || this.#open.has(destinationId)) return;
    const destination = new EndpointDestination(endpoints, row);
    try {
      await destination.replace(endpointWebhook(row, keys(), endpoints, this.#parts));
    } catch (error) {
      this.#note(row, error);
      return;
    }
    if (this.#stopping) return destination.close();
    this.#problems.delete(destinationId);
    const pipeline = pipelines.openEndpoint(row, destination);
    this.#open.set(destinationId, { version, name, destination, pipeline });
  }

  #note({ destinationId, name }: EndpointRow, error: unknown): void {
    this.#problems.set(destinationId, { name, problem: withoutName(errorText(error), name) });
  }

  /** Closes in the background: deliveries in flight may take long, and other endpoints must not wait for them. */
  #end(destinationId: number): void {
    const open = this.#open.get(destinationId);
    if (open === undefined) return;
    const { name, pipeline, destination } = open;
    const { pipelines, emit } = this.#options;
    this.#open.delete(destinationId);
    this.#idle.delete(destinationId);
    const closed = pipelines
      .close(pipeline)
      .then(() => destination.close())
      .catch((error: unknown) => emit(troubleOf(`close ${name}`, error)))
      .finally(() => {
        this.#closing.delete(destinationId);
        this.#openSoon();
      });
    this.#closing.set(destinationId, closed);
  }

  #tellProblems(): void {
    const { problems } = this;
    const told = problems.join('\n');
    if (told !== this.#told)
      for (const problem of problems) this.#options.emit({ name: 'endpoints_waiting', problem });
    this.#told = told;
  }
}

/** The first version of an endpoint is 1. */
function countsOf(changes: readonly EndpointChange[]) {
  const closed = changes.filter(({ removed }) => removed).length;
  const opened = changes.filter(({ removed, version }) => !removed && version === 1).length;
  return { opened, changed: changes.length - opened - closed, closed };
}

/** Stores the configured settings in the database. Without them, the relay serves no endpoints. */
export async function endpointPipelinesOf(
  { endpoints, relay }: RelaySetup,
  options: Pick<EndpointPipelinesOptions, 'database' | 'pipelines' | 'emit'> & { wakeUp: WakeUp },
): Promise<EndpointPipelines | undefined> {
  if (endpoints === undefined) return undefined;
  const { retry, whenDead } = endpoints.settings;
  const { settings: _settings, shared: _shared, ...limits } = endpoints;
  await syncEndpointSettings(options.database, { ...retry, whenDead, ...limits });
  const { concurrency } = relay;
  const keys = () => secretKeys();
  return new EndpointPipelines({ ...options, endpoints, keys, concurrency });
}

/** Removes the endpoint's name, so that one problem of many endpoints is reported once. */
function withoutName(problem: string, name: string): string {
  return problem.replace(`the secret of ${name}`, 'the secret');
}

/** A figure that is expensive to compute, and may be a little old. */
class Recent {
  readonly #compute: () => number;
  readonly #maxAgeMs: number;
  #value = 0;
  #atMs = Number.NEGATIVE_INFINITY;

  constructor(compute: () => number, maxAgeMs: number) {
    this.#compute = compute;
    this.#maxAgeMs = maxAgeMs;
  }

  get(): number {
    const nowMs = performance.now();
    if (nowMs - this.#atMs >= this.#maxAgeMs) {
      this.#value = this.#compute();
      this.#atMs = nowMs;
    }
    return this.#value;
  }
}
