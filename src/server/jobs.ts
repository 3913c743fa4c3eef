// Changes of many messages at once, asked for on the page: planned (how many, which), confirmed, then done in short
// transactions by this process, with progress and a way to stop. A job that dies with its process has done what it
// has done; the same plan again does the rest.

import { randomUUID } from 'node:crypto';

import type { Database } from '../database/connection.js';
import { changeDeadLetters } from '../database/dead-letters.js';
import type { DeadLetterAction, DeadLetterFilter } from '../database/dead-letters.js';
import { errorText } from '../errors.js';

export type Job = {
  readonly id: string;
  readonly action: DeadLetterAction;
  readonly filter: DeadLetterFilter;
  readonly actor: string;
  readonly startedAt: Date;
  /** What the plan counted. */
  readonly planned: number;
  done: number;
  state: 'running' | 'done' | 'cancelled' | 'failed';
  error: string | null;
  endedAt: Date | null;
};

const keptJobs = 100;

export class Jobs {
  readonly #database: Database;
  readonly #jobs = new Map<string, Job>();
  #running: Promise<unknown> = Promise.resolve();

  constructor(database: Database) {
    this.#database = database;
  }

  list(): Job[] {
    return [...this.#jobs.values()].toReversed();
  }

  find(id: string): Job | undefined {
    return this.#jobs.get(id);
  }

  /** One after the other: two at once would only wait for each other's rows. */
  start(action: DeadLetterAction, filter: DeadLetterFilter, planned: number, actor: string): Job {
    const job: Job = {
      id: randomUUID(),
      action,
      filter,
      actor,
      startedAt: new Date(),
      planned,
      done: 0,
      state: 'running',
      error: null,
      endedAt: null,
    };
    this.#jobs.set(job.id, job);
    for (const id of this.#jobs.keys()) {
      if (this.#jobs.size <= keptJobs) break;
      this.#jobs.delete(id);
    }
    this.#running = this.#running.then(() => this.#run(job));
    return job;
  }

  /** What is done stays done. */
  cancel(id: string): Job | undefined {
    const job = this.#jobs.get(id);
    if (job?.state === 'running') this.#end(job, 'cancelled');
    return job;
  }

  async close(): Promise<void> {
    for (const { id } of this.list()) this.cancel(id);
    await this.#running;
  }

  async #run(job: Job): Promise<void> {
    if (job.state !== 'running') return;
    try {
      await changeDeadLetters(this.#database, job.action, job.filter, job.actor, {
        onProgress: (count) => void (job.done = count),
        goesOn: () => job.state === 'running',
      });
      if (job.state === 'running') this.#end(job, 'done');
    } catch (error) {
      job.error = errorText(error);
      this.#end(job, 'failed');
    }
  }

  #end(job: Job, state: Job['state']): void {
    job.state = state;
    job.endedAt = new Date();
  }
}
