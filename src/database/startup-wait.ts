// Startup wait: a relay or subscription that starts while its database is down, restarting or read-only, or while a lock
// is held, waits for it instead of failing. Errors that do not go away by themselves, such as a wrong password or a
// missing database, fail at once.

import { delay } from '../core/delay.js';
import { DatabaseReadOnlyError, errorText } from '../core/errors.js';
import { isTransient } from './connection.js';
import type { Database } from './connection.js';

export type StartupWaitOptions = {
  /** Fails with the last error after this time; 0: at once. */
  limitMs: number;
  /** Ends the wait. */
  signal: AbortSignal;
  emit: (
    event:
      | { name: 'database_unavailable'; error: string; againMs: number }
      | { name: 'database_available'; waitedMs: number },
  ) => void;
};

const lookMs = 1000;

/** One limit for all steps of a start. */
export class StartupWait {
  readonly #database: Database;
  readonly #options: StartupWaitOptions;
  readonly #startedMs = performance.now();
  #isWritable = false;

  constructor(database: Database, options: StartupWaitOptions) {
    this.#database = database;
    this.#options = options;
  }

  /**
   * Runs a step of the start when the database accepts writes, and repeats it after a temporary error. The step must
   * be repeatable.
   */
  async run<T>(step: () => Promise<T>): Promise<T> {
    const { limitMs, signal, emit } = this.#options;
    for (let tries = 1; ; tries += 1) {
      try {
        await this.#look();
        const result = await step();
        if (tries > 1) emit({ name: 'database_available', waitedMs: this.#waitedMs() });
        return result;
      } catch (error) {
        this.#isWritable = false;
        const passes = isTransient(error) || error instanceof DatabaseReadOnlyError;
        if (!passes || signal.aborted || this.#waitedMs() >= limitMs) throw error;
        // jitter, so the relays of a fleet do not all retry at once
        const againMs = Math.round(lookMs * (0.5 + Math.random() / 2));
        emit({ name: 'database_unavailable', error: errorText(error), againMs });
        await delay(againMs, signal);
        if (signal.aborted) throw error;
      }
    }
  }

  /** Checks once that the database accepts writes, and again after a failure. */
  async #look(): Promise<void> {
    if (!this.#isWritable) await refuseReadOnly(this.#database);
    this.#isWritable = true;
  }

  #waitedMs(): number {
    return Math.round(performance.now() - this.#startedMs);
  }
}

async function refuseReadOnly(database: Database): Promise<void> {
  const [row] = await database.query<{ isStandby: boolean; isReadOnly: boolean }>(
    'look for the database',
    `SELECT pg_is_in_recovery() AS "isStandby", current_setting('transaction_read_only')::boolean AS "isReadOnly"`,
  );
  if (!row?.isReadOnly) return;
  // read-only may be a setting of the login or the database, which a session keeps until it ends
  database.discardIdle();
  throw new DatabaseReadOnlyError(row.isStandby);
}
