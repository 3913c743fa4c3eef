// Runs a job that this process holds, with signs of life beside the work, until it has ended, somebody else has taken it
// over, or this process is to stop; then it is given up at once, so that another may go on.

import { errorText } from '../errors.js';
import { isTransient } from './connection.js';
import type { Database } from './connection.js';
import { failJob, heldMs, holdJob, stepJob } from './jobs.js';
import { runSteps } from './run-steps.js';

export async function runJob(
  database: Database,
  id: string,
  { holder, signal }: { holder: string; signal: AbortSignal },
): Promise<void> {
  let holding: Promise<void> = Promise.resolve();
  // a sign that is missing is missed only if the next ones are too
  const signs = setInterval(
    () => void (holding = holdJob(database, id, holder).catch(() => {})),
    heldMs / 3,
  );
  const giveUp = async (): Promise<void> => {
    clearInterval(signs);
    // a sign that comes later would take it again
    await holding;
    await holdJob(database, id, holder, 0);
  };
  try {
    await runSteps(async () => ({ goesOn: await stepJob(database, id, holder), waitMs: 0 }), {
      signal,
    });
    if (signal.aborted) await giveUp();
  } catch (error) {
    // what may pass is no reason to end it
    if (isTransient(error)) await giveUp();
    else await failJob(database, id, holder, errorText(error));
  } finally {
    clearInterval(signs);
  }
}
