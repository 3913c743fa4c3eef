// Whether something is still kept by somebody, asked of V8 itself.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Cleans all of memory. Node shows it to programs only if it was told so when it started, or before a context is made. */
function collector(): () => void {
  setFlagsFromString('--expose-gc');
  try {
    return runInNewContext('gc') as () => void;
  } finally {
    setFlagsFromString('--no-expose-gc');
  }
}

/** Of these, how many somebody still keeps. */
export async function kept(references: readonly WeakRef<object>[]): Promise<number> {
  // what a reference was made of, or has shown, is kept until the turn ends
  await nextTurn();
  collector()();
  return references.filter((reference) => reference.deref() !== undefined).length;
}
