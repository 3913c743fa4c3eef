// Maps a receiver's answer to an outcome. Only the status decides, never the text: the configured codes first, then the
// tables below; everything else is retried by the schedule. An answer counts once its headers are complete: a body that
// is cut off does not change the status.

import { STATUS_CODES } from 'node:http';

import { errorText } from '../../core/errors.js';
import { delivered, pause, reject, retry } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import { TokenError } from './access-token.js';
import { TargetRefusedError } from './targets.js';
import { keptBytes } from './kept-response.js';
import type { ResponseKeeper } from './kept-response.js';

/**
 * Statuses with a special meaning, unless the configuration says otherwise. Any other status outside 2xx is a plain
 * retry.
 */
const meanings: Readonly<Record<number, 'gone' | 'busy'>> = {
  410: 'gone', // the receiver wants no more messages: the destination is paused until an operator resumes it
  429: 'busy', // retried at the time that the receiver gives, if it gives one
  503: 'busy',
};

/** Codes or names of errors without a status. Any other error is `connection_failed`. */
const failures: Readonly<Record<string, readonly ['retry', string]>> = {
  HTTPParserError: ['retry', 'answer_invalid'], // not HTTP, or malformed
  UND_ERR_HEADERS_OVERFLOW: ['retry', 'answer_invalid'], // too many headers
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: ['retry', 'answer_invalid'], // several lengths, or an invalid one
  STATUS_INVALID: ['retry', 'answer_invalid'],
  TOO_MANY_INTERIM_ANSWERS: ['retry', 'answer_invalid'],
  UND_ERR_HEADERS_TIMEOUT: ['retry', 'timeout'],
  TimeoutError: ['retry', 'timeout'], // of a signal with its own timeout
};

/** The answer is not a valid HTTP response. */
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

/** Returns a header by its name in lower case. */
export type AnswerHeader = (name: string) => string | undefined;

export function isSuccess({ successCodes }: AnswerRules, status: number): boolean {
  return successCodes?.includes(status) ?? (status >= 200 && status < 300);
}

/** Whether the beginning of the body is stored; the status always is. */
export function isKept({ keepResponses }: AnswerRules, success: boolean): boolean {
  return keepResponses === 'all' || (keepResponses === 'failures' && !success);
}

/** Replaces the rest of a body that was cut off, by the connection or by the timeout. */
const cutMark = '[cut off]';
/** Statuses without a body, whatever their headers say. */
const withoutBody = new Set([204, 304]);

function keptText(
  { keeper }: AnswerRules,
  status: number,
  beginning: Buffer,
  isCut: boolean,
): string {
  const isWhole = !isCut && beginning.length < keeper.neededBytes;
  const text = beginning.length === 0 ? '' : keeper.textOf(beginning, isWhole);
  const lacksSome = isCut && beginning.length < keptBytes && !withoutBody.has(status);
  return lacksSome ? `${text}${cutMark}` : text;
}

/** `beginning`: as much of the body as the rules store, or as much as came before it was cut off. */
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
  // an earlier retry than scheduled would use up the tries while the receiver has problems
  if (afterMs <= scheduledMs()) return retry({ code: 'http_status', message, ...answer });
  return retry({ code: 'http_status', message, ...answer, afterMs });
}

/** For a request without a valid answer. */
export function failureOf(error: Error): Outcome {
  if (error instanceof TargetRefusedError)
    return retry({ code: 'target_refused', message: error.message });
  if (error instanceof TokenError)
    return retry({ code: 'token_failed', remoteCode: error.code, message: error.message });
  const { code: given, name } = error as { code?: unknown; name: string };
  // codes of the web platform's errors are numbers, which say nothing to operators
  const remoteCode = typeof given === 'string' ? given : name;
  const [, code] = failures[remoteCode] ?? ['retry', 'connection_failed'];
  return retry({ code, remoteCode, message: errorText(error) });
}

/**
 * The delay that the receiver asks for, or undefined if the schedule decides. "At once" is ignored too, because failing
 * receivers often send it without intent. A date is compared with the receiver's clock, the `Date` header of the same
 * answer, because that clock may be wrong; without it, with this machine's clock.
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

/** Parses one of HTTP's three date formats, all of them in GMT; NaN for anything else. */
function httpDate(text: string): number {
  if (dateForm.test(text)) return Date.parse(text);
  if (dateWithoutZone.test(text)) return Date.parse(`${text} GMT`);
  const [, day, month, shortYear, clock] = shortDateForm.exec(text) ?? [];
  if (shortYear === undefined) return Number.NaN;
  // a two-digit year more than 50 years ahead belongs to the previous century
  const year = 2000 + Number(shortYear);
  const century = year > new Date().getUTCFullYear() + 50 ? 100 : 0;
  return Date.parse(`${day} ${month} ${year - century} ${clock} GMT`);
}
