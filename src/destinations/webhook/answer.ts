// What the answer of a receiver means. The statuses decide, never the text: what is configured first, then the
// table below, and everything else is tried again by the schedule.

import { STATUS_CODES } from 'node:http';

import { errorText } from '../../errors.js';
import { delivered, pause, reject, retry } from '../../model/outcome.js';
import type { Outcome } from '../../model/outcome.js';
import { TargetRefusedError } from './targets.js';
import type { ResponseKeeper } from './kept-response.js';

/** What these mean where the configuration says nothing else. Each other status outside 2xx is a plain retry. */
const meanings: Readonly<Record<number, 'gone' | 'busy'>> = {
  410: 'gone', // the receiver wants no more of these: the destination is paused, until somebody resumes it
  429: 'busy', // tried again when the receiver says, if it says so
  503: 'busy',
};

export type AnswerRules = {
  /** undefined: 2xx */
  readonly successCodes: readonly number[] | undefined;
  readonly terminalCodes: readonly number[];
  readonly maxRetryAfterMs: number;
  readonly keepResponses: 'failures' | 'all' | 'none';
  readonly keeper: ResponseKeeper;
};

/** By its name in lower case. */
export type AnswerHeader = (name: string) => string | undefined;

export function isSuccess({ successCodes }: AnswerRules, status: number): boolean {
  return successCodes?.includes(status) ?? (status >= 200 && status < 300);
}

export function isKept({ keepResponses }: AnswerRules, success: boolean): boolean {
  return keepResponses === 'all' || (keepResponses === 'failures' && !success);
}

/** `beginning` is as much of the body as the rules want kept. */
export function outcomeOf(
  rules: AnswerRules,
  status: number,
  header: AnswerHeader,
  beginning: Buffer | null,
  scheduledMs: () => number,
): Outcome {
  const success = isSuccess(rules, status);
  const answer = {
    remoteCode: String(status),
    ...(beginning !== null && beginning.length > 0 && { response: rules.keeper.textOf(beginning) }),
  };
  // the plain ending needs no further words: a lease of such endings is settled in one short call
  if (success) return rules.keepResponses === 'all' ? delivered(answer) : delivered();
  const message = `the receiver answered ${status} ${STATUS_CODES[status] ?? ''}`.trimEnd();
  if (rules.terminalCodes.includes(status))
    return reject({ code: 'http_status', message, ...answer });
  if (meanings[status] === 'gone') return pause({ code: 'endpoint_gone', message, ...answer });
  const wishMs = meanings[status] === 'busy' ? retryAfterMs(header) : undefined;
  const afterMs = Math.min(wishMs ?? 0, rules.maxRetryAfterMs);
  // sooner than the schedule says would use up the tries while the receiver is in trouble
  if (afterMs <= scheduledMs()) return retry({ code: 'http_status', message, ...answer });
  return retry({ code: 'http_status', message, ...answer, afterMs });
}

/** No answer came, or none that is HTTP. */
export function failureOf(error: Error): Outcome {
  if (error instanceof TargetRefusedError)
    return retry({ code: 'target_refused', message: error.message });
  const { code, name } = error as NodeJS.ErrnoException;
  return retry({ code: 'connection_failed', remoteCode: code ?? name, message: errorText(error) });
}

/**
 * What the receiver asks for, or undefined if the schedule decides: also for "at once", because that is what
 * receivers in trouble say that have not thought about it. A date is compared with the receiver's own clock, the
 * `Date` of the same answer; without one nothing is known about the distance.
 */
function retryAfterMs(header: AnswerHeader): number | undefined {
  const wish = header('retry-after')?.trim() ?? '';
  const ms = /^\d{1,10}$/.test(wish)
    ? Number(wish) * 1000
    : httpDate(wish) - httpDate(header('date')?.trim() ?? '');
  return ms > 0 ? ms : undefined;
}

const time = String.raw`\d{2}:\d{2}:\d{2}`;
const dateForms = [
  new RegExp(`^[A-Z][a-z]{2}, \\d{2} [A-Z][a-z]{2} \\d{4} ${time} GMT$`),
  new RegExp(`^[A-Z][a-z]+day, \\d{2}-[A-Z][a-z]{2}-\\d{2} ${time} GMT$`),
];
const dateWithoutZone = new RegExp(`^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \\d]\\d ${time} \\d{4}$`);

/** One of the three forms that HTTP knows, all of them in GMT; NaN for anything else. */
function httpDate(text: string): number {
  if (dateForms.some((form) => form.test(text))) return Date.parse(text);
  return dateWithoutZone.test(text) ? Date.parse(`${text} GMT`) : Number.NaN;
}
