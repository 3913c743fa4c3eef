// Hold: keeps the right to do something that one process at a time does, for longer than a transaction: read with a
// cursor, run a job, do the daily retention, notify of alerts. The database elects the process
// (sql/functions/core/holds.sql). This class renews the hold every third of its duration, so that two renewals may fail
// before another process takes over.

import type { Emit } from '../../telemetry/events.js';
import { IntervalTask } from './interval-task.js';

export type HoldOptions = {
  /** Names the renewal in events. */
  what: string;
  heldMs: number;
  /** False: another process has taken the hold. */
  renew: () => Promise<boolean>;
  /** False: it was lost before. */
  release: () => Promise<boolean>;
  /** The hold is lost. Called at each renewal that finds it so. */
  onLost?: () => void;
  /** Reports a renewal that failed. */
  emit: Emit;
};

export class Hold {
  readonly #renewal: IntervalTask;
  readonly #release: () => Promise<boolean>;

  /** Begins to renew a hold that was just taken. */
  constructor({ what, heldMs, renew, release, onLost, emit }: HoldOptions) {
    this.#release = release;
    this.#renewal = new IntervalTask(what, Math.floor(heldMs / 3), emit, async () => {
      if (!(await renew())) onLost?.();
    });
    this.#renewal.start();
  }

  /** Stops the renewals: the hold expires, unless it is released. */
  async stop(): Promise<void> {
    await this.#renewal.stop();
  }

  /** Another process can take the hold at once. False: it was lost before, or the database did not answer. */
  async release(): Promise<boolean> {
    // a renewal that arrived after the release would do nothing, but its connection may be about to close
    await this.stop();
    return this.#release().catch(() => false);
  }
}
