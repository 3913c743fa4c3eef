// Keeps one pipeline for each endpoint of the database, while they come, change and go. It looks for changes at the
// doorbell and every second; a look that finds nothing is one small query. An endpoint that cannot be opened, for
// want of the key, has no pipeline: its deliveries wait, and the problem is told until it is gone.

import type { Database } from '../database/connection.js';
import { nextDueMs } from '../database/doorbells.js';
import { readEndpointChanges, syncEndpointSettings } from '../database/endpoints.js';
import type { EndpointRow } from '../database/endpoints.js';
import { errorText } from '../errors.js';
import type { SecretKey } from '../model/sealed-secret.js';
import { secretKeys } from '../secret-keys.js';
import type { Emit } from '../telemetry/events.js';
import { EndpointDestination, endpointWebhook } from './endpoint-destination.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';
import type { Pipeline } from './pipeline.js';
import type { Pipelines } from './pipelines.js';
import type { RelaySetup } from './setup.js';

type Served = {
  row: EndpointRow;
  destination: EndpointDestination | undefined;
  pipeline: Pipeline | undefined;
  problem: string | undefined;
};

export type EndpointPipelinesOptions = {
  database: Database;
  endpoints: ResolvedEndpointOptions;
  /** Asked for each time: a key file may be replaced while the relay runs. */
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

  /** What cannot be served, and why: one text for each reason. */
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

  /** One look after the other. With `dueOnly`, for a drain, endpoints for which nothing is due are left out. */
  async look({ dueOnly = false } = {}): Promise<void> {
    const look = () => this.#look(dueOnly);
    this.#looking = this.#looking.then(look, look);
    await this.#looking;
  }

  /** No further endpoint is opened or changed. The pipelines are the relay's to stop. */
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
    // after a restore on another server, old changes may look new for ever
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
      // one that was closed a moment ago may still be giving back what it held
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

  /** In the background: what is under way may take its time, and nobody else should wait for it. */
  #end({ row, pipeline, destination }: Served): void {
    if (pipeline === undefined) return;
    const closed = this.#options.pipelines
      .close(pipeline)
      .then(() => destination?.close())
      .catch((error: unknown) =>
        this.#options.emit({
          name: 'trouble',
          what: `close ${row.name}`,
          error: errorText(error),
        }),
      )
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

/** Makes the settings of the configuration those of the database. Without them, the relay serves no endpoints. */
export async function endpointPipelinesOf(
  { endpoints }: RelaySetup,
  options: Pick<EndpointPipelinesOptions, 'database' | 'pipelines' | 'emit'>,
): Promise<EndpointPipelines | undefined> {
  if (endpoints === undefined) return undefined;
  const { retry, whenDead } = endpoints.settings;
  await syncEndpointSettings(options.database, { ...retry, whenDead });
  return new EndpointPipelines({ ...options, endpoints, keys: () => secretKeys() });
}

/** The same reason reads the same for every endpoint, so that it is told once for all of them. */
function withoutName(problem: string, name: string): string {
  return problem.replace(`the secret of ${name}`, 'the secret');
}
