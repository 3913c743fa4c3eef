// Garbage collection checks: asks V8 whether an object is still reachable.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Runs a full garbage collection. Node exposes `gc` only if the flag was set at its start, or before a context is
 * created.
 */
function collector(): () => void {
  setFlagsFromString('--expose-gc');
  try {
    return runInNewContext('gc') as () => void;
  } finally {
    setFlagsFromString('--no-expose-gc');
  }
}

/** How many of these objects are still reachable. */
export async function kept(references: readonly WeakRef<object>[]): Promise<number> {
  // V8 keeps the target of a WeakRef alive until the current turn ends
  await nextTurn();
  collector()();
  return references.filter((reference) => reference.deref() !== undefined).length;
}
