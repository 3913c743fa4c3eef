// Runs a replay until it has ended or this process is to stop; then it is unfinished, and whoever runs it next goes on.

import type { Database } from './connection.js';
import { stepReplay } from './replays.js';
import { runSteps } from './run-steps.js';
import type { RunOptions } from './run-steps.js';

export async function runReplay(
  database: Database,
  id: string,
  options: RunOptions,
): Promise<void> {
  await runSteps(async () => {
    const { state, waitMs } = await stepReplay(database, id);
    return { goesOn: state === 'unfinished', waitMs };
  }, options);
}
