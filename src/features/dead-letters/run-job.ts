// Runs a job that this process holds, until it has ended, another process has taken it over, or this process stops. In
// the last case, and if the database stays away, the hold is released at once, so that another process can resume the
// job. Any other error ends the job as failed.

import { errorText } from '../../core/errors.js';
import { isTransient } from '../../database/connection.js';
import type { Database } from '../../database/connection.js';
import { runSteps } from '../../database/run-steps.js';
import type { RunOptions } from '../../database/run-steps.js';
import { Hold } from '../../relay/upkeep/hold.js';
import { failJob, heldMs, renewJob, releaseJob, stepJob } from './jobs.js';
import type { HeldJob } from './jobs.js';

/** Throws the error that interrupted the job, or with which it has failed. */
export async function runJob(database: Database, job: HeldJob, options: RunOptions): Promise<void> {
  const hold = new Hold({
    what: 'hold job',
    heldMs,
    renew: () => renewJob(database, job),
    release: () => releaseJob(database, job),
    // a failed renewal does no harm, and steps renew the hold, too
    emit: () => {},
  });
  try {
    await runSteps(async () => ({ goesOn: await stepJob(database, job), waitMs: 0 }), options);
  } catch (error) {
    if (!isTransient(error)) await failJob(database, job, errorText(error)).catch(() => {});
    throw error;
  } finally {
    await hold.release();
  }
}
