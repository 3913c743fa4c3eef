// Endpoint pipelines: keeps one pipeline per endpoint while endpoints are added, changed and removed. Checks for
// changes on a notification and every second; a check without changes is one small query. An endpoint whose secret
// cannot be opened has no pipeline: its deliveries wait, and the problem is reported until it is solved.

import type { Database } from '../../database/connection.js';
import { nextDueMs } from '../../database/wake-up.js';
import { readEndpointChanges, syncEndpointSettings } from './database.js';
import type { EndpointRow } from './database.js';
import { errorText } from '../../core/errors.js';
import type { SecretKey } from './sealed-secret.js';
import { secretKeys } from './secret-keys.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import { EndpointDestination, endpointWebhook } from './destination.js';
import type { ResolvedEndpointOptions } from './options.js';
import type { Pipeline } from '../../relay/delivery/pipeline.js';
import type { Pipelines } from '../../relay/delivery/pipelines.js';
import type { RelaySetup } from '../../relay/setup.js';

type Served = {
  row: EndpointRow;
  destination: EndpointDestination | undefined;
  pipeline: Pipeline | undefined;
  problem: string | undefined;
};

export type EndpointPipelinesOptions = {
  database: Database;
  endpoints: ResolvedEndpointOptions;
  /** Called each time, because a key file may be replaced while the relay runs. */
  keys: () => readonly SecretKey[];
  pipelines: Pipelines;
  emit: Emit;
};

const againMs = 10_000;
const shownNames = 3;

export class EndpointPipelines {
  readonly #options: EndpointPipelinesOptions;
  readonly #served = new Map<number, Served>();
  readonly #closing = new Map<number, Promise<void>>();
  #seen: string | null = null;
  #looking: Promise<void> = Promise.resolve();
  #stopping = false;
  #retriedMs = performance.now();
  #told = '';

  constructor(options: EndpointPipelinesOptions) {
    this.#options = options;
  }

  /** Why endpoints cannot be served: one text per reason. */
  get problems(): string[] {
    const names = new Map<string, string[]>();
    for (const { row, problem } of this.#served.values())
      if (problem !== undefined) names.set(problem, [...(names.get(problem) ?? []), row.name]);
    return [...names].map(([problem, waiting]) => {
      const shown = waiting.slice(0, shownNames).join(', ');
      const more = waiting.length - shownNames;
      const who = `${shown}${more > 0 ? ` and ${more} more` : ''}`;
      return `endpoints are not served (${who}): ${problem}`;
    });
  }

  /**
   * Checks for changes, one check at a time. With `dueOnly`, for a drain, endpoints without due deliveries are left
   * out.
   */
  async look({ dueOnly = false } = {}): Promise<void> {
    const look = () => this.#look(dueOnly);
    this.#looking = this.#looking.then(look, look);
    await this.#looking;
  }

  /** Opens and changes no further endpoints. The relay stops the pipelines itself. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#looking.catch(() => {});
    await Promise.all(this.#closing.values());
  }

  async close(): Promise<void> {
    const served = [...this.#served.values()];
    await Promise.all(served.map(async ({ destination }) => destination?.close()));
  }

  async #look(dueOnly: boolean): Promise<void> {
    if (this.#stopping) return;
    const { seen, changes } = await readEndpointChanges(this.#options.database, this.#seen);
    const wanted = dueOnly ? await this.#withDueWork(changes) : changes;
    // after a restore on another server, old changes may look new on every check
    const news = wanted.filter(
      ({ destinationId, version }) => this.#served.get(destinationId)?.row.version !== version,
    );
    const counts = { opened: 0, changed: 0, closed: 0 };
    for (const row of [...news, ...this.#toTryAgain()]) {
      const done = await this.#apply(row);
      if (done) counts[done] += 1;
    }
    this.#seen = seen;
    if (counts.opened + counts.changed + counts.closed > 0)
      this.#options.emit({ name: 'endpoints_changed', ...counts });
    this.#tellProblems();
  }

  async #withDueWork(rows: EndpointRow[]): Promise<EndpointRow[]> {
    const due = await nextDueMs(this.#options.database);
    return rows.filter(({ destinationId }) => (due.get(destinationId) ?? 1) <= 0);
  }

  #toTryAgain(): EndpointRow[] {
    if (performance.now() - this.#retriedMs < againMs) return [];
    this.#retriedMs = performance.now();
    return [...this.#served.values()]
      .filter(({ problem }) => problem !== undefined)
      .map(({ row }) => row);
  }

  async #apply(row: EndpointRow): Promise<'opened' | 'changed' | 'closed' | undefined> {
    if (this.#stopping) return undefined;
    const known = this.#served.get(row.destinationId);
    if (row.removed) {
      this.#served.delete(row.destinationId);
      if (known?.pipeline === undefined) return undefined;
      this.#end(known);
      return 'closed';
    }
    const { endpoints, keys, pipelines } = this.#options;
    try {
      const webhook = endpointWebhook(row, keys(), endpoints);
      if (known?.pipeline !== undefined && known.destination !== undefined) {
        await known.destination.replace(webhook);
        this.#served.set(row.destinationId, { ...known, row, problem: undefined });
        return 'changed';
      }
      // a pipeline that was closed a moment ago may still be releasing its deliveries
      await this.#closing.get(row.destinationId);
      const destination = new EndpointDestination(endpoints);
      await destination.replace(webhook);
      if (this.#stopping) {
        await destination.close();
        return undefined;
      }
      const pipeline = pipelines.openEndpoint(row, destination);
      this.#served.set(row.destinationId, { row, destination, pipeline, problem: undefined });
      return 'opened';
    } catch (error) {
      this.#served.set(row.destinationId, {
        row,
        destination: undefined,
        pipeline: undefined,
        problem: withoutName(errorText(error), row.name),
      });
      if (known?.pipeline === undefined) return undefined;
      this.#end(known);
      return 'closed';
    }
  }

  /** Closes in the background: deliveries in flight may take long, and other endpoints must not wait for them. */
  #end({ row, pipeline, destination }: Served): void {
    if (pipeline === undefined) return;
    const closed = this.#options.pipelines
      .close(pipeline)
      .then(() => destination?.close())
      .catch((error: unknown) => this.#options.emit(troubleOf(`close ${row.name}`, error)))
      .finally(() => this.#closing.delete(row.destinationId));
    this.#closing.set(row.destinationId, closed);
  }

  #tellProblems(): void {
    const { problems } = this;
    const told = problems.join('\n');
    if (told !== this.#told)
      for (const problem of problems) this.#options.emit({ name: 'endpoints_waiting', problem });
    this.#told = told;
  }
}

/** Stores the configured settings in the database. Without them, the relay serves no endpoints. */
export async function endpointPipelinesOf(
  { endpoints }: RelaySetup,
  options: Pick<EndpointPipelinesOptions, 'database' | 'pipelines' | 'emit'>,
): Promise<EndpointPipelines | undefined> {
  if (endpoints === undefined) return undefined;
  const { retry, whenDead } = endpoints.settings;
  const { maxPerTenant } = endpoints;
  await syncEndpointSettings(options.database, { ...retry, whenDead, maxPerTenant });
  return new EndpointPipelines({ ...options, endpoints, keys: () => secretKeys() });
}

/** Removes the endpoint's name, so that one problem of many endpoints is reported once. */
function withoutName(problem: string, name: string): string {
  return problem.replace(`the secret of ${name}`, 'the secret');
}
