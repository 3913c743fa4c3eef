// Runs a replay: step after step, at the pace that the database gives, until it has ended or this process is to stop.
// A database that goes away for a moment is waited for. Nothing is kept here: whoever runs it next goes on from the row.

import { setTimeout as delay } from 'node:timers/promises';

import { isTransient } from './connection.js';
import type { Database } from './connection.js';
import { stepReplay } from './replays.js';

export type RunOptions = {
  /** Leaves it unfinished. */
  signal: AbortSignal;
  onStep?: () => Promise<void>;
  /** The database does not answer: told once, until it does. */
  onTrouble?: (error: unknown) => void;
};

/** So often in a row the database may fail to answer. */
const mostFailures = 30;

export async function runReplay(
  database: Database,
  id: string,
  { signal, onStep, onTrouble }: RunOptions,
): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    let waitMs = 0;
    try {
      const step = await stepReplay(database, id);
      failures = 0;
      if (step.state !== 'unfinished') return;
      ({ waitMs } = step);
      await onStep?.();
    } catch (error) {
      failures += 1;
      if (!isTransient(error) || failures > mostFailures) throw error;
      if (failures === 1) onTrouble?.(error);
      waitMs = 1000;
    }
    if (waitMs > 0) await delay(waitMs, undefined, { signal }).catch(() => {});
  }
}
