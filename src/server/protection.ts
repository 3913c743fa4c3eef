// Protection of every request, before any route runs: checks host, origin, content type and body size, and maps errors
// to responses. Also makes the authenticator, which access.ts uses to check a token or a cookie.

import { Hono } from 'hono';
import type { Context } from 'hono';

import { isTransient } from '../database/connection.js';
import { WaybillError, errorText } from '../core/errors.js';
import type { AppOptions } from './app.js';
import { checkHost, checkOrigin, sessionCookieOf } from './access.js';
import type { Authenticator } from './access.js';
import { AcceptedSecrets } from './accepted-secrets.js';
import { LoginThrottle } from './login-throttle.js';
import { HttpProblem } from './route.js';

const largestBodyBytes = 1024 * 1024;
/** Levels of arrays and objects in a body. */
const deepest = 100;
/**
 * PostgreSQL's codes for an invalid value: not allowed, null, invalid time, time out of range, malformed, and characters
 * that it cannot store.
 */
const invalidValueCodes = new Set<unknown>([
  '22023',
  '22004',
  '22007',
  '22008',
  '22P02',
  '22P05',
  '22021',
]);

/** PostgreSQL's code of limit_tenant: the tenant does something too often. */
const limitCode = '54000';

/** The application with the checks that apply to every request. */
export function protectedApp(authentication: AppOptions['authentication']): Hono {
  const app = new Hono();
  app.use(async (context, next) => {
    checkHost(context, { authentication });
    await next();
    context.header('x-content-type-options', 'nosniff');
    context.header('referrer-policy', 'no-referrer');
    if (!context.res.headers.has('cache-control')) context.header('cache-control', 'no-store');
  });
  app.use(async (context, next) => {
    if (changesSomething(context)) checkChange(context);
    await next();
  });
  app.onError((error, context) => {
    const { status, message } = problemOf(error);
    return context.json({ error: message }, status);
  });
  return app;
}

export function authenticatorOf({
  database,
  authentication,
  singleSignOn,
  shard,
}: Pick<AppOptions, 'database' | 'authentication' | 'singleSignOn' | 'shard'>): Authenticator {
  return {
    database,
    authentication,
    ...(singleSignOn && { singleSignOn }),
    throttle: new LoginThrottle(),
    accepted: new AcceptedSecrets(),
    cookie: sessionCookieOf(shard),
  };
}

export function changesSomething(context: Context): boolean {
  return !['GET', 'HEAD', 'OPTIONS'].includes(context.req.method);
}

function checkChange(context: Context): void {
  checkOrigin(context);
  const length = Number(context.req.header('content-length') ?? 0);
  if (length > largestBodyBytes)
    throw new HttpProblem(413, `the body has ${length} bytes: give at most ${largestBodyBytes}`);
  const type = context.req.header('content-type');
  if ((length > 0 || type !== undefined) && !/^application\/json\b/i.test(type ?? ''))
    throw new HttpProblem(415, `the body is ${type ?? 'of no type'}: send application/json`);
}

/** Reads the body. The client may not be authenticated yet. */
export async function bodyOf(context: Context): Promise<Record<string, unknown>> {
  if (context.req.method === 'GET') return {};
  const text = await textOf(context.req.raw);
  if (text === '') return {};
  if (isDeep(text))
    throw new HttpProblem(400, `the body is nested too deep: give at most ${deepest} levels`);
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch (error) {
    throw new HttpProblem(400, `the body is not JSON: ${errorText(error)}`);
  }
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw new HttpProblem(400, 'the body is not an object: send {…}');
  return body as Record<string, unknown>;
}

/** PostgreSQL refuses JSON that is nested thousands of levels deep, and nothing that the API takes has many. */
function isDeep(text: string): boolean {
  let level = 0;
  // strings are matched whole, so their brackets do not count
  for (const [found] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/g)) {
    if (found === '[' || found === '{') level += 1;
    else if (found === ']' || found === '}') level -= 1;
    if (level > deepest) return true;
  }
  return false;
}

/** Stops reading at the size limit, because a request may not state its length. */
async function textOf({ body }: Request): Promise<string> {
  if (body === null) return '';
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    bytes += chunk.length;
    if (bytes > largestBodyBytes)
      throw new HttpProblem(413, `the body is too long: give at most ${largestBodyBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Whether the database was given a number that is too large for it, or has computed one. */
export function isOutOfRange(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === '22003';
}

/** Whether the database could not read a value of the request. */
export function isInvalidValue(error: unknown): boolean {
  return invalidValueCodes.has((error as { code?: unknown } | null)?.code);
}

function problemOf(error: Error): { status: HttpProblem['status'] | 500; message: string } {
  if (error instanceof HttpProblem) return { status: error.status, message: error.message };
  if (isTransient(error)) return { status: 503, message: `the database: ${errorText(error)}` };
  const { code } = error as { code?: unknown };
  if (code === 'P0002') return { status: 404, message: error.message };
  if (code === limitCode) return { status: 429, message: error.message };
  // the client sent an invalid value, and the message says which
  if (error instanceof WaybillError || isInvalidValue(error))
    return { status: 400, message: error.message };
  return { status: 500, message: errorText(error) };
}
