// Runs a job of the database step by step, at the pace that the database asks for, until it ends or this process
// stops. A short outage of the database is waited out. The job's state is in its row, so the next process continues
// from there.

import { setTimeout as delay } from 'node:timers/promises';

import { isTransient } from './connection.js';

export type StepTaken = { goesOn: boolean; waitMs: number };

export type RunOptions = {
  /** Stops after the current step; the job can be resumed. */
  signal: AbortSignal;
  onStep?: () => Promise<void>;
  /** The database does not answer. Called once per outage. */
  onTrouble?: (error: unknown) => void;
};

/** Failed steps in a row before the error is thrown. */
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
