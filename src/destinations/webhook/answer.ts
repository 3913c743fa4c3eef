// What the answer of a receiver means. The statuses decide, never the text: what is configured first, then the
// tables below, and everything else is tried again by the schedule. An answer counts from the end of its headers on:
// a receiver whose body is cut off has said its status all the same.

import { STATUS_CODES } from 'node:http';

import { errorText } from '../../errors.js';
import { delivered, pause, reject, retry } from '../../model/outcome.js';
import type { Outcome } from '../../model/outcome.js';
import { TargetRefusedError } from './targets.js';
import { keptBytes } from './kept-response.js';
import type { ResponseKeeper } from './kept-response.js';

/** What these mean where the configuration says nothing else. Each other status outside 2xx is a plain retry. */
const meanings: Readonly<Record<number, 'gone' | 'busy'>> = {
  410: 'gone', // the receiver wants no more of these: the destination is paused, until somebody resumes it
  429: 'busy', // tried again when the receiver says, if it says so
  503: 'busy',
};

/** What these errors are, by their codes or names, where no status came. Each other one is `connection_failed`. */
const failures: Readonly<Record<string, readonly ['retry', string]>> = {
  HTTPParserError: ['retry', 'answer_invalid'], // not HTTP at all, or not as it must be written
  UND_ERR_HEADERS_OVERFLOW: ['retry', 'answer_invalid'], // more headers than anybody reads
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: ['retry', 'answer_invalid'], // several lengths, or one that is none
  STATUS_INVALID: ['retry', 'answer_invalid'],
  TOO_MANY_INTERIM_ANSWERS: ['retry', 'answer_invalid'],
  UND_ERR_HEADERS_TIMEOUT: ['retry', 'timeout'],
  TimeoutError: ['retry', 'timeout'], // of a signal that aborts by itself
};

/** What came is nothing that HTTP knows as an answer to a request. */
export class AnswerInvalidError extends Error {
  override readonly name = 'AnswerInvalidError';
  readonly code: 'STATUS_INVALID' | 'TOO_MANY_INTERIM_ANSWERS';

  constructor(code: AnswerInvalidError['code'], message: string) {
    super(message);
    this.code = code;
  }
}

export type AnswerRules = {
  /** undefined: 2xx */
  readonly successCodes: readonly number[] | undefined;
  readonly terminalCodes: readonly number[];
  readonly maxRetryAfterMs: number;
  readonly keepResponses: 'all' | 'failures' | 'none';
  readonly keeper: ResponseKeeper;
};

/** By its name in lower case. */
export type AnswerHeader = (name: string) => string | undefined;

export function isSuccess({ successCodes }: AnswerRules, status: number): boolean {
  return successCodes?.includes(status) ?? (status >= 200 && status < 300);
}

/** Whether the beginning of the body is; the status always is. */
export function isKept({ keepResponses }: AnswerRules, success: boolean): boolean {
  return keepResponses === 'all' || (keepResponses === 'failures' && !success);
}

/** Stands where the rest would: the connection ended, or the time did. */
const cutMark = '[cut off]';
/** Whatever their headers say. */
const withoutBody = new Set([204, 304]);

function keptText(
  { keeper }: AnswerRules,
  status: number,
  beginning: Buffer,
  isCut: boolean,
): string {
  const text = beginning.length === 0 ? '' : keeper.textOf(beginning);
  const lacksSome = isCut && beginning.length < keptBytes && !withoutBody.has(status);
  return lacksSome ? `${text}${cutMark}` : text;
}

/** `beginning` is as much of the body as the rules want kept, or as came before it was cut off. */
export function outcomeOf(
  rules: AnswerRules,
  status: number,
  header: AnswerHeader,
  beginning: Buffer | null,
  isCut: boolean,
  scheduledMs: () => number,
): Outcome {
  const response = beginning === null ? '' : keptText(rules, status, beginning, isCut);
  const answer = { remoteCode: String(status), ...(response !== '' && { response }) };
  if (isSuccess(rules, status)) return delivered(answer);
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
  const { code: given, name } = error as { code?: unknown; name: string };
  // those of the web platform have numbers as codes, which say nothing to anybody
  const remoteCode = typeof given === 'string' ? given : name;
  const [, code] = failures[remoteCode] ?? ['retry', 'connection_failed'];
  return retry({ code, remoteCode, message: errorText(error) });
}

/**
 * What the receiver asks for, or undefined if the schedule decides: also for "at once", because that is what
 * receivers in trouble say that have not thought about it. A date is compared with the receiver's own clock, the
 * `Date` of the same answer, because it may be wrong; with this machine's where there is none.
 */
function retryAfterMs(header: AnswerHeader): number | undefined {
  const wish = header('retry-after')?.trim() ?? '';
  const ms = /^\d+$/.test(wish) ? Number(wish) * 1000 : httpDate(wish) - nowOf(header);
  return ms > 0 ? ms : undefined;
}

function nowOf(header: AnswerHeader): number {
  const theirsMs = httpDate(header('date')?.trim() ?? '');
  return Number.isNaN(theirsMs) ? Date.now() : theirsMs;
}

const time = String.raw`\d{2}:\d{2}:\d{2}`;
const dateForm = new RegExp(`^[A-Z][a-z]{2}, \\d{2} [A-Z][a-z]{2} \\d{4} ${time} GMT$`);
const shortDateForm = new RegExp(
  `^[A-Z][a-z]+day, (\\d{2})-([A-Z][a-z]{2})-(\\d{2}) (${time}) GMT$`,
);
const dateWithoutZone = new RegExp(`^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \\d]\\d ${time} \\d{4}$`);

/** One of the three forms that HTTP knows, all of them in GMT; NaN for anything else. */
function httpDate(text: string): number {
  if (dateForm.test(text)) return Date.parse(text);
  if (dateWithoutZone.test(text)) return Date.parse(`${text} GMT`);
  const [, day, month, shortYear, clock] = shortDateForm.exec(text) ?? [];
  if (shortYear === undefined) return Number.NaN;
  // a year that seems more than 50 ahead is one of the century before
  const year = 2000 + Number(shortYear);
  const century = year > new Date().getUTCFullYear() + 50 ? 100 : 0;
  return Date.parse(`${day} ${month} ${year - century} ${clock} GMT`);
}
