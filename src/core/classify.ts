// Classify: decides by its code alone whether a failure is retried, rejected or pauses the destination; the text of
// an error never decides. The remote code is looked up first, then Waybill's own. A code that is not listed follows
// `default`; without a default, the destination's own outcome stands.

import { refuse } from './options.js';
import { pause, reject, retry } from './outcome.js';
import type { Failure, Outcome } from './outcome.js';

export type ClassifiedAs = 'retry' | 'reject' | 'pause';

/** Outcomes by code; `default` is for all other codes. */
export type Classify = { readonly [code: string]: ClassifiedAs };

const classes: readonly unknown[] = ['retry', 'reject', 'pause'] satisfies ClassifiedAs[];

/** Not failures of the destination: it was not called, or the relay was stopping. */
const notItsOwn = new Set(['guard_refused', 'guard_failed', 'stopped']);

export function classifyKind(name: string, value: unknown): Classify | undefined {
  if (value === undefined) return undefined;
  // the entries of a list or a Map are not properties, and would be ignored
  if (typeof value !== 'object' || value === null || Symbol.iterator in value)
    refuse(name, value, "give codes and what they mean, such as { '422': 'reject' }");
  for (const [code, classifiedAs] of Object.entries(value)) {
    if (!classes.includes(classifiedAs))
      refuse(`${name}.${code}`, classifiedAs, "give 'retry', 'reject' or 'pause'");
  }
  // codes are text of other systems: without a prototype, only listed codes are found
  return Object.assign(Object.create(null) as object, value) as Classify;
}

export function classified(outcome: Outcome, classify: Classify | undefined): Outcome {
  if (classify === undefined || !('code' in outcome) || notItsOwn.has(outcome.code)) return outcome;
  const { remoteCode, code } = outcome;
  const classifiedAs =
    (remoteCode === undefined ? undefined : classify[remoteCode]) ??
    classify[code] ??
    classify['default'];
  if (classifiedAs === undefined || classifiedAs === outcome.kind) return outcome;
  const failure = failureOf(outcome);
  return { retry, reject, pause }[classifiedAs](failure);
}

function failureOf({ code, remoteCode, message, response }: Failure): Failure {
  return {
    code,
    ...(remoteCode !== undefined && { remoteCode }),
    ...(message !== undefined && { message }),
    ...(response !== undefined && { response }),
  };
}
