// The delivering processes: relays with different batch sizes, and workers that use only the SQL functions. A killed
// process is replaced at once.

import path from 'node:path';

import { Child } from '../crash/child-process.js';
import { isClaim } from '../crash/faults.js';
import { PostgresProxy } from '../crash/postgres-proxy.js';
import { relayRoutes } from './plan.js';
import type { DestinationName } from './plan.js';

/** The shortest lease that the relay allows, so that a killed relay is noticed soon. */
export const leaseMs = 1000;
const reapMs = 100;
export const retry = { maxAttempts: 4, baseMs: 10, maxMs: 60 };
/** Short too: a silent connection is noticed 2 s later. */
const statementTimeoutMs = 5000;
/** One deadline, the grace period of a second, and time to reconnect; less than two deadlines. */
export const resumeBoundMs = statementTimeoutMs + 2000 + 1000 + 5000;

export type RelayProcessOptions = {
  databaseUrl: string;
  sinkUrl: string;
  directory: string;
  batchSize: number;
  /** The script. Default '../order/relay.mjs'. */
  script?: '../order/relay.mjs' | '../order/worker.mjs';
  /** The checkout whose Waybill it runs; without it, this one. */
  root?: string;
  /** Default: the first application, which deploys no new version. */
  application?: { name: string; version: number; routes: readonly Route[] };
};
type Route = { topic: string; to: DestinationName };

type Said = { started?: string; trouble?: string };

/**
 * Starts a process, and retries: when the clock of the server jumps ahead, PostgreSQL takes a running statement for one
 * that has run too long, and ends it.
 */
export async function startSurely(process: { start(): Promise<void> }): Promise<void> {
  for (let attempt = 1; attempt < 5; attempt += 1) {
    try {
      return await process.start();
    } catch {
      // once more
    }
  }
  await process.start();
}

export class RelayProcess {
  readonly #place: string;
  readonly #options: RelayProcessOptions;
  readonly troubles: string[] = [];
  #child: Child<Said> | undefined;
  #proxy: PostgresProxy | undefined;
  #starts = 0;
  #relayId = '';

  constructor(place: string, options: RelayProcessOptions) {
    this.#place = place;
    this.#options = options;
  }

  get name(): string {
    return `${this.#place}-${this.#starts}`;
  }

  get relayId(): string {
    return this.#relayId;
  }

  async start(): Promise<void> {
    const { databaseUrl, sinkUrl, directory, batchSize, root, script, application } = this.#options;
    this.#starts += 1;
    this.#proxy ??= await PostgresProxy.start(databaseUrl);
    const database = { url: this.#proxy.through(databaseUrl), statementTimeoutMs };
    await new Promise<void>((resolve, fail) => {
      const child = new Child<Said>(
        script ?? '../order/relay.mjs',
        {
          name: this.name,
          root,
          database,
          sinkUrl,
          application: application?.name ?? 'orders',
          version: String(application?.version ?? 1),
          routes: application?.routes ?? relayRoutes,
          relay: { leaseMs, reapMs, batchSize, pollMs: 20, fallbackPollMs: 200 },
          retry,
        },
        path.join(directory, `${this.name}.err`),
        ({ started, trouble }) => {
          if (trouble !== undefined) this.troubles.push(trouble);
          if (started === undefined) return;
          this.#relayId = started;
          resolve();
        },
      );
      this.#child = child;
      void child.ended.then(() => fail(new Error(`${this.name} ended:\n${child.lastWords()}`)));
    });
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.signal(signal);
  }

  /** Half-open: its connections fall silent, new ones work. Returns how long it took to claim again, if it did. */
  async silence(): Promise<number | undefined> {
    this.#proxy?.freeze('present');
    const silentMs = performance.now();
    const claim = await this.#proxy?.hold(isClaim, 2 * resumeBoundMs).catch(() => undefined);
    claim?.pass();
    this.#proxy?.cutFrozen();
    return claim && performance.now() - silentMs;
  }

  /** Stops it cleanly; returns its exit code. */
  async stop(): Promise<number | null> {
    this.#child?.signal('SIGTERM');
    return (await this.#child?.ended)?.code ?? null;
  }

  async kill(): Promise<void> {
    await this.#child?.kill();
  }

  async remove(): Promise<void> {
    await this.kill();
    await this.#proxy?.close();
  }
}
