// Live line of `waybill dev`: one status line, rewritten every second on a terminal and printed every five seconds
// elsewhere.

import type { Database } from '../database/connection.js';
import { readDeliveryTimes, readHealth } from '../listing/reports.js';
import type { RelayEvent } from '../telemetry/events.js';

export class LiveLine {
  readonly #database: Database;
  readonly #terminal = process.stdout.isTTY;
  #delivered = 0;
  #lastDelivered = 0;
  #lastAtMs = performance.now();
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(database: Database) {
    this.#database = database;
  }

  observe(event: RelayEvent): void {
    if (event.name === 'settled') this.#delivered += event.counts.delivered;
  }

  start(enqueued: () => number): void {
    this.#timer = setTimeout(
      () => {
        this.#print(enqueued())
          .catch(() => {})
          .finally(() => {
            if (!this.#stopped) this.start(enqueued);
          });
      },
      this.#terminal ? 1000 : 5000,
    );
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    if (this.#terminal) process.stdout.write('\n');
  }

  async #print(enqueued: number): Promise<void> {
    const health = new Map(
      (await readHealth(this.#database)).map(({ metric, value }) => [metric, value ?? 0]),
    );
    const { p50Ms, p99Ms } = await readDeliveryTimes(this.#database);
    const nowMs = performance.now();
    const perSecond = ((this.#delivered - this.#lastDelivered) * 1000) / (nowMs - this.#lastAtMs);
    this.#lastDelivered = this.#delivered;
    this.#lastAtMs = nowMs;
    const ms = (value: number | null) =>
      value === null ? '–' : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
    const line =
      `enqueued ${enqueued} · delivered ${perSecond.toFixed(0)}/s · waiting ${health.get('waiting') ?? 0} · ` +
      `retrying ${health.get('retrying') ?? 0} · dead ${health.get('dead') ?? 0} · p50 ${ms(p50Ms)} · p99 ${ms(p99Ms)}`;
    if (this.#stopped) return;
    process.stdout.write(
      this.#terminal
        ? `\r\u001B[2K${line.slice(0, (process.stdout.columns || 120) - 1)}`
        : `${line}\n`,
    );
  }
}
