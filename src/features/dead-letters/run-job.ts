// Runs a job that this process holds and sends heartbeats meanwhile. Ends when the job has ended, another process has
// taken it over, or this process stops; in the last case the job is given up at once, so that another process can
// resume it.

import { errorText } from '../../core/errors.js';
import { isTransient } from '../../database/connection.js';
import type { Database } from '../../database/connection.js';
import { failJob, heldMs, holdJob, stepJob } from './jobs.js';
import { runSteps } from '../../database/run-steps.js';

export async function runJob(
  database: Database,
  id: string,
  { holder, signal }: { holder: string; signal: AbortSignal },
): Promise<void> {
  let holding: Promise<void> = Promise.resolve();
  // one failed heartbeat does no harm: three fit into heldMs
  const signs = setInterval(
    () => void (holding = holdJob(database, id, holder).catch(() => {})),
    heldMs / 3,
  );
  const giveUp = async (): Promise<void> => {
    clearInterval(signs);
    // a heartbeat that arrives after the release would hold the job again
    await holding;
    await holdJob(database, id, holder, 0);
  };
  try {
    await runSteps(async () => ({ goesOn: await stepJob(database, id, holder), waitMs: 0 }), {
      signal,
    });
    if (signal.aborted) await giveUp();
  } catch (error) {
    // after a transient error, another process can resume the job
    if (isTransient(error)) await giveUp();
    else await failJob(database, id, holder, errorText(error));
  } finally {
    clearInterval(signs);
  }
}
