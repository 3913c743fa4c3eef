// Access tokens of OAuth 2: one token request serves many calls. A token is renewed before its end, and once after a
// receiver answered 401. Calls that need a token at the same time share a request. A token is kept in memory only, and
// is in no error, no event and no stored response.

import { STATUS_CODES } from 'node:http';

import type { CheckedAuth } from './auth.js';
import type { OpenPool } from './pool.js';
import { TargetRefusedError } from './targets.js';

export type OAuth2Client = Extract<CheckedAuth, { type: 'oauth2' }>;

export type AccessToken = {
  readonly text: string;
  /** By `performance.now()`: from here on it is renewed. */
  readonly renewAtMs: number;
  readonly endMs: number;
};

/** The token server gave no access token. */
export class TokenError extends Error {
  override readonly name = 'TokenError';
  /** A status, or the code of an error of the network. */
  readonly code: string;

  constructor(code: string, message: string, options?: { cause?: unknown }) {
    super(`no access token: ${message}`, options);
    this.code = code;
  }
}

export type AskForToken = () => Promise<AccessToken>;

/** A token is renewed this long before its end; a short-lived one after nine tenths of its life. */
const marginMs = 60_000;
const usedPart = 0.9;
/** The life of a token whose server does not say when it ends. */
const usualLifeMs = 3_600_000;
const longestLifeMs = 24 * 3_600_000;
/** A token with a shorter life is used this long, so that not every call asks for another one. */
const shortestLifeMs = 1000;
/** After a new token was refused too, a 401 asks for no other one for this long. */
const uselessMs = 60_000;
/** If a renewal fails, the old token stays in use, and the next renewal waits for this long. */
const againMs = 5000;

/** The token of one client at one token server. */
export class TokenSource {
  #current: AccessToken | undefined;
  #request: Promise<AccessToken> | undefined;
  #uselessUntilMs = 0;

  get endMs(): number {
    return this.#current?.endMs ?? 0;
  }

  /** The token to use now. */
  get(ask: AskForToken): AccessToken | Promise<AccessToken> {
    const current = this.#current;
    const nowMs = performance.now();
    if (current !== undefined && nowMs < current.renewAtMs) return current;
    const request = this.#ask(ask);
    if (current === undefined || nowMs >= current.endMs) return request;
    return request.catch(() => (this.#current = { ...current, renewAtMs: nowMs + againMs }));
  }

  /** Another token after a receiver refused this one; null if another one would not help. */
  async after(refused: AccessToken, ask: AskForToken): Promise<AccessToken | null> {
    const current = this.#current;
    if (current !== undefined && current.text !== refused.text) return current;
    if (performance.now() < this.#uselessUntilMs) return null;
    return this.#ask(ask);
  }

  /** The receiver also refused the token that was requested after a 401. */
  wasUseless(): void {
    this.#uselessUntilMs = performance.now() + uselessMs;
  }

  #ask(ask: AskForToken): Promise<AccessToken> {
    this.#request ??= ask()
      .then((token) => (this.#current = token))
      .finally(() => (this.#request = undefined));
    return this.#request;
  }
}

const longestAnswerBytes = 64 * 1024;
/** Codes of RFC 6749 for a refused token request. No other text of the token server is shown. */
const refusals = new Set([
  'invalid_request',
  'invalid_client',
  'invalid_grant',
  'unauthorized_client',
  'unsupported_grant_type',
  'invalid_scope',
]);

/** Asks the token server over checked connections. */
export async function requestToken(
  { tokenUrl, header, body }: OAuth2Client,
  open: (origin: string) => Promise<OpenPool>,
  timeoutMs: number,
): Promise<AccessToken> {
  const opened = await open(tokenUrl.origin);
  try {
    const answer = await opened.pool.request({
      method: 'POST',
      path: `${tokenUrl.pathname}${tokenUrl.search}`,
      headers: {
        'content-type': 'application/x-www-form-urlencoded',
        accept: 'application/json',
        ...(header !== undefined && { authorization: header }),
      },
      body,
      signal: AbortSignal.timeout(timeoutMs),
    });
    return tokenOf(answer.statusCode, await jsonIn(answer.body));
  } catch (error) {
    if (error instanceof TokenError || error instanceof TargetRefusedError) throw error;
    const { code, name } = error as { code?: unknown; name: string };
    const shown = typeof code === 'string' ? code : name;
    throw new TokenError(shown, `the token server gave no answer (${shown})`, { cause: error });
  } finally {
    await opened.close();
  }
}

async function jsonIn(body: AsyncIterable<Buffer>): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > longestAnswerBytes)
      throw new TokenError('TOKEN_INVALID', 'the answer of the token server is too long');
    chunks.push(chunk);
  }
  try {
    const value: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function tokenOf(status: number, answer: Record<string, unknown>): AccessToken {
  if (status !== 200) {
    const reason = refusals.has(String(answer['error'])) ? ` (${String(answer['error'])})` : '';
    const words = `${status} ${STATUS_CODES[status] ?? ''}`.trimEnd();
    throw new TokenError(String(status), `the token server answered ${words}${reason}`);
  }
  const { access_token: text, token_type: type = 'bearer', expires_in: given } = answer;
  if (typeof text !== 'string' || !/^[\u0021-\u007e]{1,8192}$/.test(text))
    throw new TokenError('TOKEN_INVALID', 'the answer of the token server has no access_token');
  if (typeof type !== 'string' || type.toLowerCase() !== 'bearer')
    throw new TokenError(
      'TOKEN_INVALID',
      'the token server gave a token that is not a bearer token',
    );
  const seconds = Number(given);
  const givenMs = seconds > 0 ? seconds * 1000 : usualLifeMs;
  const lifeMs = Math.max(Math.min(givenMs, longestLifeMs), shortestLifeMs);
  const nowMs = performance.now();
  return {
    text,
    renewAtMs: nowMs + Math.max(lifeMs * usedPart, lifeMs - marginMs),
    endMs: nowMs + lifeMs,
  };
}
