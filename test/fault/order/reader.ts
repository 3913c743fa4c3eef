// The reader of a seed: a process that reads the seed's messages from the log. It is killed while idle and while the
// sink has one of its batches; each time another one takes over.

import path from 'node:path';

import { Child } from '../crash/child-process.js';
import { PostgresProxy } from '../crash/postgres-proxy.js';
import type { Plan } from './plan.js';
import type { World } from './world.js';

/** One more than the readers that are killed during one message. */
const retry = { maxAttempts: 2, baseMs: 10, maxMs: 60 };

export class Reader {
  readonly #world: World;
  readonly #namespace: string;
  readonly #batchSize: number;
  #proxy: PostgresProxy | undefined;
  #child: Child<{ reading?: boolean }> | undefined;
  #starts = 0;

  constructor(world: World, { namespace }: Plan, batchSize: number) {
    this.#world = world;
    this.#namespace = namespace;
    this.#batchSize = batchSize;
  }

  get name(): string {
    return `reader-${this.#namespace}-${this.#starts}`;
  }

  /** Waits until it holds the cursor. */
  async start(): Promise<void> {
    await new Promise<void>((resolve, fail) => {
      void this.#launch(resolve).then(
        (child) =>
          child.ended.then(() => fail(new Error(`${this.name} ended:\n${child.lastWords()}`))),
        fail,
      );
    });
  }

  /** Starts a reader, and kills it when it holds the cursor and sends its first query for messages. */
  async startAndDieIdle(): Promise<void> {
    const proxy = await this.#connect();
    const asks = proxy.hold(({ sql }) => sql.includes('.open_window('), 60_000);
    await this.#launch(() => {});
    const held = await asks;
    await this.kill();
    held.drop();
  }

  async #connect(): Promise<PostgresProxy> {
    this.#proxy ??= await PostgresProxy.start(this.#world.server.url);
    return this.#proxy;
  }

  async #launch(onReading: () => void): Promise<Child<{ reading?: boolean }>> {
    const { server, sink, directory } = this.#world;
    const proxy = await this.#connect();
    this.#starts += 1;
    this.#child = new Child<{ reading?: boolean }>(
      '../order/reader.mjs',
      {
        name: this.name,
        namespace: this.#namespace,
        databaseUrl: proxy.through(server.url),
        sinkUrl: sink.url,
        batchSize: this.#batchSize,
        retry,
      },
      path.join(directory, `${this.name}.err`),
      ({ reading }) => {
        if (reading) onReading();
      },
    );
    return this.#child;
  }

  async kill(): Promise<void> {
    await this.#child?.kill();
  }

  async remove(): Promise<void> {
    await this.kill();
    await this.#proxy?.close();
  }
}
