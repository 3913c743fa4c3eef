// Load while versions change: seeds of the order proof run one after the other, a few at a time, until the test ends
// the load. Every seed is judged by the producers' log and the sink's log: nothing lost, keys in order, duplicates with
// the same id only. Complaints of programs and server are read from their own logs.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { onTestFinished } from 'vitest';

import { waitFor } from '../../support/wait.js';
import { runSeeds } from '../order/run.js';
import type { Verdict } from '../order/run.js';
import type { RelayProcess } from '../order/relays.js';
import type { World } from '../order/world.js';

const lines = 3;

/** The errors of incompatible versions, from the server or from a program. */
const misfits =
  /does not exist|is not unique|cached plan must not|cache lookup failed|permission denied|has no field|result type|unknown option|TypeError|ReferenceError/i;

export class Load {
  readonly verdicts: Verdict[] = [];
  readonly #world: World;
  readonly #running: Promise<unknown>;
  #seed = 0;
  #over = false;

  constructor(world: World) {
    this.#world = world;
    const line = async () => {
      while (!this.#over) this.verdicts.push(...(await runSeeds(world, [this.#next()])));
    };
    this.#running = Promise.all(Array.from({ length: lines }, line));
    // the caller that awaits the end gets the error; a failed test also ends the load before its world
    this.#running.catch(() => {});
    onTestFinished(() => this.end().then(undefined, () => undefined));
  }

  /** Every fifth seed disturbs relays, which is not wanted here. */
  #next(): number {
    this.#seed += 1;
    if (this.#seed % 5 === 0) this.#seed += 1;
    return this.#seed;
  }

  /**
   * Waits until one process of each group has delivered something new, because the fastest process may take everything.
   */
  async deliversBy(...groups: readonly (readonly RelayProcess[])[]): Promise<void> {
    const requests = (group: readonly RelayProcess[]) =>
      group.reduce((sum, { name }) => sum + this.#world.sink.requestsOf(name), 0);
    const before = groups.map(requests);
    const delivered = waitFor(
      () => groups.every((group, index) => requests(group) > (before[index] ?? 0)),
      {
        what: `deliveries by ${groups.map((group) => group.map(({ name }) => name).join(' or ')).join(', and by ')}`,
        timeoutMs: 30_000,
      },
    );
    // a load that has failed delivers nothing, and knows why
    await Promise.race([delivered, this.#running.then(() => delivered)]);
  }

  async end(): Promise<void> {
    this.#over = true;
    await this.#running;
  }
}

/** Lines about incompatible versions in the logs of all processes and of the server. */
export function complaints(world: World): string[] {
  const files = readdirSync(world.directory).filter((name) => name.endsWith('.err'));
  const texts = [
    ...files.map((name) => [name, readFileSync(path.join(world.directory, name), 'utf8')] as const),
    ['server', readFileSync(world.server.logFile, 'utf8')] as const,
    ...world.relays.map((relay) => [relay.name, relay.troubles.join('\n')] as const),
  ];
  return texts.flatMap(([name, text]) =>
    text
      .split('\n')
      .filter((line) => misfits.test(line))
      .map((line) => `${name}: ${line}`),
  );
}
