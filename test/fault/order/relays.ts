// The relay processes: three that differ in how much they take at once. One that is killed is replaced at once.

import path from 'node:path';

import { Child } from '../crash/child-process.js';
import { routes } from './plan.js';

/** Short leases, so that a killed relay is missed soon; the shortest that the relay allows. */
export const leaseMs = 1000;
const reapMs = 100;
export const maxAttempts = 4;

export type RelayProcessOptions = {
  databaseUrl: string;
  sinkUrl: string;
  directory: string;
  batchSize: number;
  /** The checkout whose Waybill it runs; without it, this one. */
  root?: string;
};

type Said = { started?: string; trouble?: string };

export class RelayProcess {
  readonly #place: string;
  readonly #options: RelayProcessOptions;
  readonly troubles: string[] = [];
  #child: Child<Said> | undefined;
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
    const { databaseUrl, sinkUrl, directory, batchSize, root } = this.#options;
    this.#starts += 1;
    await new Promise<void>((resolve, fail) => {
      const child = new Child<Said>(
        '../order/relay.mjs',
        {
          name: this.name,
          root,
          databaseUrl,
          sinkUrl,
          routes,
          relay: { leaseMs, reapMs, batchSize, pollMs: 20, fallbackPollMs: 200 },
          retry: { maxAttempts, baseMs: 10, maxMs: 60 },
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

  /** Cleanly; gives its exit code. */
  async stop(): Promise<number | null> {
    this.#child?.signal('SIGTERM');
    return (await this.#child?.ended)?.code ?? null;
  }

  async kill(): Promise<void> {
    await this.#child?.kill();
  }
}
