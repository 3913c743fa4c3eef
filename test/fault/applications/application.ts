// An application under test: its producers, its relay processes, and the logs of both.

import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import path from 'node:path';

import { createOutbox } from '../../../src/producer/outbox.js';
import type { TestDatabase } from '../../support/postgres.js';
import { waitFor } from '../../support/wait.js';
import { Child } from '../crash/child-process.js';
import { readLines } from '../crash/sink.js';

type Said = { started?: string };

const keys = 5;
const producers = 2;

/** The routes of each version; producers send a topic while all running relays, or the newest, have its route. */
export const versions = { 1: ['kept', 'dropped'], 2: ['kept', 'added'] } as const;

export class ApplicationUnderTest {
  readonly name: string;
  readonly committed: string[] = [];
  readonly #db: TestDatabase;
  readonly #directory: string;
  readonly #stopping = new AbortController();
  readonly #relays = new Map<string, { child: Child<Said>; id: string }>();
  #topics: readonly string[] = versions[1];
  #producing: Promise<unknown> = Promise.resolve();

  constructor(name: string, db: TestDatabase, directory: string) {
    this.name = name;
    this.#db = db;
    this.#directory = directory;
  }

  get relayIds(): string[] {
    return [...this.#relays.values()].map(({ id }) => id);
  }

  /** Enqueues messages of all keys, one transaction each, until it is stopped. */
  produce(): void {
    const outbox = createOutbox({ schema: this.#db.schema });
    const one = async () => {
      while (!this.#stopping.signal.aborted) {
        const topic = this.#topics[Math.floor(Math.random() * this.#topics.length)] ?? 'kept';
        const key = `${this.name}-${Math.floor(Math.random() * keys)}`;
        const { id } = await this.#db.inTransaction((client) =>
          outbox.enqueue(client, { topic: `${this.name}.${topic}`, key, payload: null }),
        );
        this.committed.push(id);
      }
    };
    this.#producing = Promise.all(Array.from({ length: producers }, one));
  }

  send(...topics: readonly string[]): void {
    this.#topics = topics;
  }

  async start(place: string, version: keyof typeof versions): Promise<void> {
    const name = `${place}-${randomUUID().slice(0, 4)}`;
    const id = await new Promise<string>((resolve, fail) => {
      const child = new Child<Said>(
        '../applications/relay.mjs',
        {
          name,
          application: this.name,
          version: String(version),
          topics: versions[version].map((topic) => `${this.name}.${topic}`),
          databaseUrl: this.#db.url,
          logFile: this.#logFile,
        },
        path.join(this.#directory, `${name}.err`),
        ({ started }) => {
          if (started === undefined) return;
          this.#relays.set(place, { child, id: started });
          resolve(started);
        },
      );
      void child.ended.then(() => fail(new Error(`${name} ended:\n${child.lastWords()}`)));
    });
    if (id === '') throw new Error('the relay has no id');
  }

  async stop(place: string): Promise<void> {
    const { child } = this.#take(place);
    child.signal('SIGTERM');
    await child.ended;
  }

  async kill(place: string): Promise<void> {
    await this.#take(place).child.kill();
  }

  /** Waits until this many more messages were committed and delivered. */
  async goOn(count = 60): Promise<void> {
    const sent = this.committed.length + count;
    const seen = this.deliveries.length + count;
    await waitFor(() => this.committed.length >= sent && this.deliveries.length >= seen, {
      what: `${count} more messages of ${this.name}`,
      timeoutMs: 60_000,
    });
  }

  async end(): Promise<void> {
    this.#stopping.abort();
    await this.#producing;
    await waitFor(
      () => new Set(this.deliveries.map(({ id }) => id)).size >= this.committed.length,
      {
        what: `all ${this.committed.length} messages of ${this.name}`,
        timeoutMs: 60_000,
      },
    );
  }

  async remove(): Promise<void> {
    this.#stopping.abort();
    await this.#producing;
    await Promise.all([...this.#relays.values()].map(({ child }) => child.kill()));
  }

  get deliveries(): { id: string; key: string; sequence: number }[] {
    if (!existsSync(this.#logFile)) return [];
    return readLines(this.#logFile).map((line) => {
      const [id = '', key = '', sequence = ''] = line.split(' ');
      return { id, key, sequence: Number(sequence) };
    });
  }

  /** First deliveries that arrived after a later one of their key. */
  get outOfOrder(): string[] {
    const last = new Map<string, number>();
    const seen = new Set<string>();
    return this.deliveries.flatMap(({ id, key, sequence }) => {
      if (seen.has(id)) return [];
      seen.add(id);
      const before = last.get(key) ?? 0;
      last.set(key, Math.max(before, sequence));
      return sequence === before + 1 ? [] : [`${key}: ${sequence} after ${before}`];
    });
  }

  get #logFile(): string {
    return path.join(this.#directory, `${this.name}.log`);
  }

  #take(place: string): { child: Child<Said> } {
    const found = this.#relays.get(place);
    if (found === undefined) throw new Error(`there is no relay ${place}`);
    this.#relays.delete(place);
    return found;
  }
}
