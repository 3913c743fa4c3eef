// What a failure means, by its code alone: the text of an error never decides. The other side's code is looked up
// first, then Waybill's own; a code that is not listed follows the default, and without one the destination's
// own verdict stands.

import { refuse } from './options.js';
import { pause, reject, retry } from './outcome.js';
import type { Failure, Outcome } from './outcome.js';

export type Verdict = 'retry' | 'reject' | 'pause';

/** Codes and what they mean; `default` is for all others. */
export type Classify = { readonly [code: string]: Verdict };

const verdicts: readonly unknown[] = ['retry', 'reject', 'pause'] satisfies Verdict[];

/** Not the destination's failures: it was never called, or the relay itself was at its end. */
const notItsOwn = new Set(['guard_refused', 'guard_failed', 'stopped']);

export function classifyKind(name: string, value: unknown): Classify | undefined {
  if (value === undefined) return undefined;
  // a list, a Map: their entries are not properties, and would be ignored
  if (typeof value !== 'object' || value === null || Symbol.iterator in value)
    refuse(name, value, "give codes and what they mean, such as { '422': 'reject' }");
  for (const [code, verdict] of Object.entries(value)) {
    if (!verdicts.includes(verdict))
      refuse(`${name}.${code}`, verdict, "give 'retry', 'reject' or 'pause'");
  }
  // a code is another side's text: only what was written down is found
  return Object.assign(Object.create(null) as object, value) as Classify;
}

export function classified(outcome: Outcome, classify: Classify | undefined): Outcome {
  if (classify === undefined || !('code' in outcome) || notItsOwn.has(outcome.code)) return outcome;
  const { remoteCode, code } = outcome;
  const verdict =
    (remoteCode === undefined ? undefined : classify[remoteCode]) ??
    classify[code] ??
    classify['default'];
  if (verdict === undefined || verdict === outcome.kind) return outcome;
  const failure = failureOf(outcome);
  return { retry, reject, pause }[verdict](failure);
}

function failureOf({ code, remoteCode, message, response }: Failure): Failure {
  return {
    code,
    ...(remoteCode !== undefined && { remoteCode }),
    ...(message !== undefined && { message }),
    ...(response !== undefined && { response }),
  };
}
