// The replays that this process runs. How far each has come is in the database, so nothing is lost with the process:
// a replay that was running when the server ended is unfinished, and goes on when somebody resumes it, here or elsewhere.

import type { Database } from '../database/connection.js';
import { runReplay } from '../database/run-replay.js';
import { errorText } from '../errors.js';

export class ReplayRuns {
  readonly #database: Database;
  readonly #stop = new AbortController();
  readonly #running = new Map<string, Promise<void>>();
  /** Why the last run of one gave up. */
  readonly #failures = new Map<string, string>();

  constructor(database: Database) {
    this.#database = database;
  }

  /** Does nothing if it runs here already. */
  run(id: string): void {
    if (this.#running.has(id) || this.#stop.signal.aborted) return;
    this.#failures.delete(id);
    const running = runReplay(this.#database, id, { signal: this.#stop.signal })
      .catch((error: unknown) => void this.#failures.set(id, errorText(error)))
      .finally(() => this.#running.delete(id));
    this.#running.set(id, running);
  }

  failureOf(id: string): string | null {
    return this.#failures.get(id) ?? null;
  }

  /** Leaves them unfinished. */
  async close(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running.values());
  }
}
