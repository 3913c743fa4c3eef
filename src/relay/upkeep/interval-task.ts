// Interval task: repeats a task at an interval, one run after the other. A slow run delays the next instead of
// overlapping with it; a failing run is reported and tried again next time. The interval may change with each run.

import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';

export class IntervalTask {
  readonly #what: string;
  readonly #intervalMs: () => number;
  readonly #emit: Emit;
  readonly #task: () => Promise<void>;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(
    what: string,
    intervalMs: number | (() => number),
    emit: Emit,
    task: () => Promise<void>,
  ) {
    this.#what = what;
    this.#intervalMs = typeof intervalMs === 'number' ? () => intervalMs : intervalMs;
    this.#emit = emit;
    this.#task = task;
  }

  start(): void {
    this.#timer = setTimeout(() => {
      this.#running = this.#run();
    }, this.#intervalMs());
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#running;
  }

  async #run(): Promise<void> {
    try {
      await this.#task();
    } catch (error) {
      this.#emit(troubleOf(this.#what, error));
    }
    if (!this.#stopped) this.start();
  }
}
