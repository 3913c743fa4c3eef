// Runs a replay until it has ended or this process stops. A stopped replay is unfinished, and the next run continues
// it.

import type { Database } from '../../database/connection.js';
import { stepReplay } from './database.js';
import { runSteps } from '../../database/run-steps.js';
import type { RunOptions } from '../../database/run-steps.js';

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
