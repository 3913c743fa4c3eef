// Maps errors of client libraries to outcomes. Each destination has a table of error codes and names; the text of an
// error never decides.

import { errorText } from '../core/errors.js';
import { pause, reject, retry } from '../core/outcome.js';
import type { Outcome } from '../core/outcome.js';
import { UnreachableError } from './shared-connection.js';

type Rule = { readonly kind: 'retry' | 'reject' | 'pause'; readonly code: string };

/** By the `code` of an error, or by its `name` if the code is not listed; all others are `unknown`. */
export type Rules = Readonly<Record<string, Rule>> & { readonly unknown: Rule };

const outcomes = { retry, reject, pause };

export function outcomeOf(error: unknown, rules: Rules, signal: AbortSignal): Outcome {
  if (signal.aborted) return retry({ code: 'timeout', message: errorText(signal.reason) });
  const chain = causesOf(error);
  for (const cause of chain) {
    const remoteCode = namesOf(cause).find((name) => Object.hasOwn(rules, name));
    const rule = remoteCode === undefined ? undefined : rules[remoteCode];
    if (rule === undefined || remoteCode === undefined) continue;
    return outcomes[rule.kind]({ code: rule.code, remoteCode, message: errorText(cause) });
  }
  const last = chain.at(-1);
  const known = { remoteCode: namesOf(last)[0] ?? 'unknown', message: errorText(last) };
  return error instanceof UnreachableError
    ? retry({ code: 'connection_failed', ...known })
    : outcomes[rules.unknown.kind]({ code: rules.unknown.code, ...known });
}

/** Describes a failure in one line, for health checks. */
export function problemOf(outcome: Outcome): string {
  if (!('code' in outcome)) return 'it does not answer as expected';
  const { code, remoteCode, message } = outcome;
  return `${code}${remoteCode === undefined ? '' : ` (${remoteCode})`}: ${message ?? ''}`;
}

function causesOf(error: unknown): unknown[] {
  const chain: unknown[] = [];
  for (let next = error; next !== undefined && chain.length < 10;) {
    chain.push(next);
    next = next instanceof Error ? next.cause : undefined;
  }
  return chain;
}

function namesOf(error: unknown): string[] {
  if (!(error instanceof Error)) return [];
  const { code, name } = error as Error & { code?: unknown };
  return typeof code === 'string' || typeof code === 'number' ? [String(code), name] : [name];
}
