// Runs what the database does step by step: one after the other, at the pace that it gives, until it has ended or this
// process is to stop. A database that goes away for a moment is waited for. Nothing is kept here: whoever runs it next
// goes on from its row.

import { setTimeout as delay } from 'node:timers/promises';

import { isTransient } from './connection.js';

export type StepTaken = { goesOn: boolean; waitMs: number };

export type RunOptions = {
  /** Leaves it as it is. */
  signal: AbortSignal;
  onStep?: () => Promise<void>;
  /** The database does not answer: told once, until it does. */
  onTrouble?: (error: unknown) => void;
};

/** So often in a row the database may fail to answer. */
const mostFailures = 30;

export async function runSteps(
  step: () => Promise<StepTaken>,
  { signal, onStep, onTrouble }: RunOptions,
): Promise<void> {
  let failures = 0;
  while (!signal.aborted) {
    let waitMs = 0;
    try {
      const taken = await step();
      failures = 0;
      if (!taken.goesOn) return;
      ({ waitMs } = taken);
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
