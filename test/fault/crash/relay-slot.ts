// A slot for one relay process: its proxy stays, while the process is killed and restarted under a new name. The
// reports of each process are kept, to be compared with the database at the end.

import path from 'node:path';

import type { RelayOptions } from '../../../src/relay/options.js';
import type { RelayEvent } from '../../../src/telemetry/events.js';
import { Child } from './child-process.js';
import type { Ending } from './child-process.js';
import { PostgresProxy } from './postgres-proxy.js';

/** One relay process from its start to its end, by its own reports. */
export type RelayRecord = {
  name: string;
  /** Empty until it has started. */
  id: string;
  end: 'running' | 'killed' | 'stopped' | 'died';
  ending: Ending | undefined;
  stopMs: number;
  /** Deliveries that it reported as settled, including failed ones. */
  settled: number;
  /** Deliveries that it reported as released when it settled. */
  settledReleases: number;
  /** Settled too late, by its own report. */
  lost: number;
  reaped: number;
  troubles: number;
  lastWords: string;
};

type Said = { started?: string; event?: RelayEvent };

export type SlotOptions = {
  databaseUrl: string;
  sinkUrl: string;
  directory: string;
  relay: RelayOptions;
  retry: { maxAttempts: number; baseMs: number; maxMs: number };
};

export class RelaySlot {
  readonly proxy: PostgresProxy;
  readonly records: RelayRecord[] = [];
  readonly #name: string;
  readonly #options: SlotOptions;
  #child: Child<Said> | undefined;
  #started: Promise<void> = Promise.resolve();

  private constructor(name: string, proxy: PostgresProxy, options: SlotOptions) {
    this.#name = name;
    this.proxy = proxy;
    this.#options = options;
  }

  static async open(name: string, options: SlotOptions): Promise<RelaySlot> {
    const slot = new RelaySlot(name, await PostgresProxy.start(options.databaseUrl), options);
    slot.start();
    return slot;
  }

  /** The current relay; waits until there is one. */
  async current(): Promise<RelayRecord> {
    await this.#started;
    const record = this.records.at(-1);
    if (record === undefined) throw new Error(`${this.#name} has not been started`);
    if (record.end === 'died')
      throw new Error(`${record.name} died by itself: ${record.lastWords}`);
    return record;
  }

  /** Starts a relay, and retries, because the database may be down. */
  start(): void {
    this.#started = this.#startSurely();
    // callers that wait for the current relay get the error
    this.#started.catch(() => {});
  }

  async #startSurely(): Promise<void> {
    for (let attempt = 1; attempt <= 20; attempt += 1) {
      if (await this.#startOnce()) return;
    }
    throw new Error(`${this.#name} did not start:\n${this.#child?.lastWords()}`);
  }

  async #startOnce(): Promise<boolean> {
    const { databaseUrl, directory, relay, retry, sinkUrl } = this.#options;
    const name = `${this.#name}-${this.records.length + 1}`;
    const record: RelayRecord = {
      name,
      id: '',
      end: 'running',
      ending: undefined,
      stopMs: 0,
      settled: 0,
      settledReleases: 0,
      lost: 0,
      reaped: 0,
      troubles: 0,
      lastWords: '',
    };
    this.records.push(record);
    return new Promise((resolve) => {
      const child = new Child<Said>(
        'relay.mjs',
        { name, databaseUrl: this.proxy.through(databaseUrl), sinkUrl, relay, retry },
        path.join(directory, `${name}.err`),
        ({ started, event }) => {
          if (event !== undefined) note(record, event);
          if (started === undefined) return;
          record.id = started;
          resolve(true);
        },
      );
      this.#child = child;
      void child.ended.then((ending) => {
        record.ending = ending;
        if (record.end === 'running' && record.id !== '') {
          record.end = 'died';
          record.lastWords = child.lastWords();
        }
        if (record.id === '') this.records.splice(this.records.indexOf(record), 1);
        resolve(false);
      });
    });
  }

  /** SIGKILL. The slot stays empty until the next start. */
  async kill(): Promise<RelayRecord> {
    const record = await this.current();
    record.end = 'killed';
    await this.#child?.kill();
    return record;
  }

  signal(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.signal(signal);
  }

  /**
   * Sends SIGTERM and measures the time until the process has ended; one that never ends is killed, and recorded as
   * such.
   */
  async stop(waitLimitMs: number): Promise<void> {
    const record = await this.current();
    if (record.end !== 'running') return;
    record.end = 'stopped';
    const startedMs = performance.now();
    this.#child?.signal('SIGTERM');
    const timer = setTimeout(() => this.#child?.signal('SIGKILL'), waitLimitMs);
    await this.#child?.ended;
    clearTimeout(timer);
    record.stopMs = performance.now() - startedMs;
    record.lastWords = this.#child?.lastWords() ?? '';
  }

  async close(): Promise<void> {
    await this.#started.catch(() => {});
    const record = this.records.at(-1);
    if (record?.end === 'running') record.end = 'killed';
    await this.#child?.kill();
    await this.proxy.close();
  }
}

function note(record: RelayRecord, event: RelayEvent): void {
  if (event.name === 'settled') {
    const { delivered, retry, reject, release } = event.counts;
    record.settled += delivered + retry + reject;
    record.settledReleases += release;
  }
  if (event.name === 'lease_lost' && event.noticedBy === 'settle')
    record.lost += event.messageIds.length;
  if (event.name === 'zombies_requeued') record.reaped += event.count;
  if (event.name === 'trouble') record.troubles += 1;
}
