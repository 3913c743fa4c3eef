// Guard: checks a message before it is sent, with a function or with a Standard Schema (https://standardschema.dev,
// 1.1) for its payload. A refused message is never sent. A guard that throws, takes too long or returns an invalid
// answer has failed: the message is not sent either, and the next try checks it again.

import { errorText, shown } from './errors.js';
import type { ClaimedMessage } from './claimed-message.js';
import { refuse } from './options.js';
import { cleanText, reject, retry } from './outcome.js';
import type { Outcome } from './outcome.js';
import { isSchema, readAnswer } from './standard-schema.js';
import type { StandardSchema } from './standard-schema.js';
import { isThenable } from './thenable.js';

export type Refusal = {
  /** A stable code of your own; it is stored as the attempt's `remote_code`. */
  readonly code: string;
  readonly message?: string;
};

type GuardAnswer = Refusal | undefined | void;

export type GuardFunction = (message: ClaimedMessage) => GuardAnswer | Promise<GuardAnswer>;

export type Guard = GuardFunction | StandardSchema;

/** Undefined: the message may be sent. */
export type Judgement = Outcome | undefined;

const longestGuardMs = 10_000;
const shownIssues = 10;

export function guardKind(name: string, value: unknown): Guard | undefined {
  if (value === undefined || typeof value === 'function' || isSchema(value))
    return value as Guard | undefined;
  return refuse(name, value, 'give a function (message) => …, or a Standard Schema');
}

/** A guard gets half of a delivery's timeout, so a hanging guard is told apart from a hanging destination. */
export function guardLimitMs(timeoutMs: number): number {
  return Math.min(Math.ceil(timeoutMs / 2), longestGuardMs);
}

export function judge(
  guard: Guard,
  message: ClaimedMessage,
  limitMs: number,
): Judgement | Promise<Judgement> {
  const schema = isSchema(guard);
  try {
    const answer: unknown = schema ? guard['~standard'].validate(message.payload) : guard(message);
    const judgementOf = schema ? ofSchema : ofFunction;
    if (!isThenable(answer)) return judgementOf(answer);
    return within(limitMs, Promise.resolve(answer).then(judgementOf).catch(failed));
  } catch (error) {
    return failed(error);
  }
}

function ofFunction(answer: unknown): Judgement {
  if (answer === undefined) return undefined;
  const { code, message } = (answer ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code !== 'string' || code === '')
    return failed(`the guard answered ${shown(answer)}: give nothing, or { code, message }`);
  return refused(code, message);
}

function ofSchema(result: unknown): Judgement {
  const answer = readAnswer(result);
  if (answer === undefined) return failed(`the schema answered ${shown(result)}`);
  if ('value' in answer) return undefined;
  const { issues } = answer;
  const texts = issues
    .slice(0, shownIssues)
    .map(({ path, message }) => (path.length === 0 ? message : `${path.join('.')}: ${message}`));
  const more = issues.length > shownIssues ? `; and ${issues.length - shownIssues} more` : '';
  return refused('schema_invalid', texts.join('; ') + more);
}

function refused(remoteCode: string, message: unknown): Outcome {
  return reject({
    code: 'guard_refused',
    remoteCode,
    ...(message !== undefined && { message: cleanText(message) }),
  });
}

function failed(error: unknown): Outcome {
  const message = typeof error === 'string' ? error : errorText(error);
  return retry({ code: 'guard_failed', message });
}

async function within(limitMs: number, answer: Promise<Judgement>): Promise<Judgement> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Judgement>((resolve) => {
    timer = setTimeout(
      () => resolve(failed(`the guard gave no answer within ${limitMs} ms`)),
      limitMs,
    );
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
