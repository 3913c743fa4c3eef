// Background runs of the server: dead-letter jobs and replays. Their progress is in the database, so nothing is lost
// with the process: any server shows and cancels them, and a run that this process left unfinished can be resumed on
// any server.

import { randomUUID } from 'node:crypto';

import type { Database } from '../database/connection.js';
import { listReplays, startReplay, stepReplay } from '../features/replays/database.js';
import type { ReplayFilter, ReplayReport, ReplayStep } from '../features/replays/database.js';
import type { HeldJob } from '../features/dead-letters/jobs.js';
import { runJob } from '../features/dead-letters/run-job.js';
import { runReplay } from '../features/replays/run-replay.js';
import { errorText } from '../core/errors.js';

/** A rate whose first step takes the only message. */
const replayNowPerSecond = 100;

export class Background {
  /** The holder id under which this process holds its jobs. */
  readonly holder = randomUUID();
  readonly jobs: Runs<HeldJob>;
  readonly replays: Runs<string>;

  constructor(database: Database) {
    this.jobs = new Runs(
      (job, signal) => runJob(database, job, { signal }),
      // a job that was lost and resumed here runs again, beside the end of its last run
      ({ id, token }) => `${id} ${token}`,
    );
    this.replays = new Runs(
      (id, signal) => runReplay(database, id, { signal }),
      (id) => id,
    );
  }

  /** Starts a replay, or continues the unfinished one with the same filter. */
  async replay(
    database: Database,
    filter: ReplayFilter,
    perSecond: number,
    actor: string,
    afterwards: (work: () => void) => void,
  ): Promise<ReplayReport | undefined> {
    // on the database of the request, which may be limited to a tenant; its steps need no limit
    const { id } = await startReplay(database, filter, perSecond, actor);
    afterwards(() => this.replays.run(id));
    return this.findReplay(database, id);
  }

  /** A replay, or undefined if there is none of this number. */
  async findReplay(database: Database, id: string): Promise<ReplayReport | undefined> {
    return (await listReplays(database, id))[0];
  }

  /** Replays one message at once, and returns what was done. */
  async replayNow(
    database: Database,
    filter: ReplayFilter & { ids: readonly [string] },
    actor: string,
    afterwards: (work: () => void) => void,
  ): Promise<ReplayStep> {
    const { id } = await startReplay(database, filter, replayNowPerSecond, actor);
    const step = await stepReplay(database, id);
    if (step.state === 'unfinished') afterwards(() => this.replays.run(id));
    return step;
  }

  /** Stops the runs; they can be resumed. */
  async close(): Promise<void> {
    await Promise.all([this.jobs.close(), this.replays.close()]);
  }
}

/** Runs of one kind. */
export class Runs<What> {
  readonly #run: (what: What, signal: AbortSignal) => Promise<void>;
  readonly #idOf: (what: What) => string;
  readonly #stop = new AbortController();
  readonly #running = new Map<string, Promise<void>>();
  /** The error that ended the last run, by id. */
  readonly #failures = new Map<string, string>();

  constructor(
    run: (what: What, signal: AbortSignal) => Promise<void>,
    idOf: (what: What) => string,
  ) {
    this.#run = run;
    this.#idOf = idOf;
  }

  /** Does nothing if it runs here already. */
  run(what: What): void {
    const id = this.#idOf(what);
    if (this.#running.has(id) || this.#stop.signal.aborted) return;
    this.#failures.delete(id);
    const running = this.#run(what, this.#stop.signal)
      .catch((error: unknown) => void this.#failures.set(id, errorText(error)))
      .finally(() => this.#running.delete(id));
    this.#running.set(id, running);
  }

  failureOf(id: string): string | null {
    return this.#failures.get(id) ?? null;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running.values());
  }
}
