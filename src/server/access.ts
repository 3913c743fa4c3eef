// Who may do what: checks the token or the login cookie, then scope and tenant. Also checks host and origin, so that a
// page of another site cannot act through an operator's browser.

import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';

import type { Context } from 'hono';
import { getCookie } from 'hono/cookie';

import type { Database } from '../database/connection.js';
import { findSecret } from '../features/tokens/database.js';
import type { Access, Found, Scope } from '../features/tokens/database.js';
import type { AcceptedSecrets } from './accepted-secrets.js';
import type { LoginThrottle } from './login-throttle.js';
import { HttpProblem } from './route.js';
import type { Route } from './route.js';
import { nameOfUser, signedOn } from './single-sign-on.js';
import type { SingleSignOn } from './single-sign-on.js';

const sessionCookie = 'waybill_session';

/** The name of the login cookie. Shards share a host, so each has its own name. */
export function sessionCookieOf(shard: string | undefined): string {
  return shard === undefined ? sessionCookie : `${sessionCookie}_${shard}`;
}

/** Without authentication, on loopback only, every process of this machine may do everything. */
export const localAccess: Access = {
  name: 'local',
  scope: 'admin',
  tenantId: null,
  forEndpoints: false,
};

export type { Access, Scope };

const rank: Record<Scope, number> = { read: 0, operate: 1, admin: 2 };

/** What a request is checked with. */
export type Authenticator = {
  readonly database: Database;
  readonly authentication: 'tokens' | 'none';
  readonly throttle: LoginThrottle;
  readonly accepted: AcceptedSecrets<Access>;
  /** The proxy that authenticates users, if any. */
  readonly singleSignOn?: SingleSignOn;
  /** The name of the login cookie, of users whom no proxy has authenticated. */
  readonly cookie: string;
};

/** What decides which cookie of a request is its login. */
type Logins = Pick<Authenticator, 'singleSignOn' | 'cookie'>;

/** The secret in the request, if any. */
export function secretOf(context: Context, logins: Logins): string | undefined {
  const header = context.req.header('authorization');
  if (header !== undefined) return /^Bearer +(\S+)$/i.exec(header)?.[1] ?? '';
  return getCookie(context, loginCookieOf(context, logins));
}

/**
 * The name of the login cookie of this request. Each user of the proxy has another one: in a browser that several
 * people use, the login of one must not be that of the next.
 */
export function loginCookieOf(context: Context, logins: Logins): string {
  const user = proxyUserOf(context, logins);
  if (user === undefined) return logins.cookie;
  const hash = createHash('sha256').update(user).digest('hex');
  return `${logins.cookie}_${hash.slice(0, 32)}`;
}

function proxyUserOf(context: Context, { singleSignOn }: Logins): string | undefined {
  return singleSignOn && nameOfUser(headersOf(context), addressOf(context), singleSignOn);
}

export async function authenticate(
  context: Context,
  authenticator: Authenticator,
): Promise<Access> {
  // a token limits access also where none is needed: the portal sees one tenant
  const needless = authenticator.authentication === 'none';
  if (needless && context.req.header('authorization') === undefined) return localAccess;
  const login = loginBeside(context, authenticator);
  if (login !== undefined) {
    // not through the throttle: after logins that have ended, it would refuse all users of the proxy
    const found = await forStranger(findSecret(authenticator.database, login));
    if (found !== null) {
      authenticator.accepted.remember(login, found);
      return found.access;
    }
    authenticator.accepted.forget(login);
  }
  const user = userOf(context, authenticator.singleSignOn);
  if (user !== undefined) return user;
  const secret = secretOf(context, authenticator);
  if (secret === undefined)
    throw new HttpProblem(401, 'log in, or send a token: Authorization: Bearer …');
  const found = await checkSecret(context, authenticator, secret);
  if (found !== null) {
    authenticator.accepted.remember(secret, found);
    return found.access;
  }
  authenticator.accepted.forget(secret);
  throw new HttpProblem(401, 'the token or the login is not valid, or has expired');
}

/**
 * The access of a request whose secret was accepted before and has not expired, without waiting for the database. It may
 * have been revoked since, so this is only for waking the relay, and once for each answer of the database.
 */
export function acceptedBefore(context: Context, authenticator: Authenticator): Access | undefined {
  if (authenticator.authentication === 'none' && context.req.header('authorization') === undefined)
    return localAccess;
  const login = loginBeside(context, authenticator);
  if (login !== undefined) return authenticator.accepted.take(login);
  const user = userOf(context, authenticator.singleSignOn);
  if (user !== undefined) return user;
  const secret = secretOf(context, authenticator);
  return secret === undefined ? undefined : authenticator.accepted.take(secret);
}

/**
 * The login of a user of the proxy. A user who has logged in with a token wants its rights, until the logout or the end
 * of the login; then the user of the proxy counts again.
 */
export function loginBeside(context: Context, logins: Logins): string | undefined {
  if (hasToken(context) || proxyUserOf(context, logins) === undefined) return undefined;
  return getCookie(context, loginCookieOf(context, logins));
}

/**
 * The user whom the proxy has authenticated. A token in the request counts more, so that scripts can use the same address;
 * what the proxy itself sends as authorization is not one.
 */
export function userOf(
  context: Context,
  singleSignOn: SingleSignOn | undefined,
): Access | undefined {
  if (singleSignOn === undefined || hasToken(context)) return undefined;
  return signedOn(headersOf(context), addressOf(context), singleSignOn);
}

function hasToken(context: Context): boolean {
  return /^Bearer +wb/i.test(context.req.header('authorization') ?? '');
}

function headersOf(context: Context): IncomingMessage['headersDistinct'] {
  const { incoming } = context.env as { incoming?: IncomingMessage };
  return incoming?.headersDistinct ?? {};
}

/** Who did it, for the audit. A user of the proxy and a token of the same name are not the same. */
export function actorOf({ access }: { readonly access: Access }): string {
  return `${access.signedOn ? 'sso' : 'api'}:${access.name}`;
}

/** Looks a secret up; null if it is not valid. Throws 429 after too many failures. */
export async function checkSecret(
  context: Context,
  { database, throttle }: Pick<Authenticator, 'database' | 'throttle'>,
  secret: string,
): Promise<Found | null> {
  return forStranger(throttle.check(addressOf(context), () => findSecret(database, secret)));
}

/** Hides errors of the database, which may contain its address, from clients without a valid token. */
export async function forStranger<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof HttpProblem) throw error;
    throw new HttpProblem(503, 'the database does not answer: try again', { cause: error });
  }
}

/** Throws 403 unless the route is for this client. */
export function allow(
  access: Access,
  { scope, forTenants, forTenantTokens }: Pick<Route, 'scope' | 'forTenants' | 'forTenantTokens'>,
): void {
  if (rank[access.scope] < rank[scope])
    throw new HttpProblem(
      403,
      `this needs the scope ${scope}, and ${access.name} has ${access.scope}`,
    );
  if (access.tenantId !== null && !forTenants)
    throw new HttpProblem(
      403,
      `${access.name} may see the tenant ${access.tenantId} only, and this concerns all`,
    );
  if (access.forEndpoints && !forTenantTokens)
    throw new HttpProblem(
      403,
      `${access.name} is a tenant token: it opens /api/endpoints and /api/events only`,
    );
}

/** Throws 403 if a token that is limited to a tenant names another one. */
export function allowTenant({ name, tenantId }: Access, values: Record<string, unknown>): void {
  const asked = values['tenantId'];
  if (tenantId !== null && asked !== undefined && asked !== tenantId)
    throw new HttpProblem(403, `${name} may see the tenant ${tenantId} only: leave tenantId out`);
}

/** Without authentication, only host names of this machine are accepted. This prevents DNS rebinding. */
export function checkHost(
  context: Context,
  { authentication }: Pick<Authenticator, 'authentication'>,
): void {
  if (authentication === 'tokens') return;
  const host = hostOf(context);
  if (!/^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/i.test(host))
    throw new HttpProblem(403, `${host} is not a name of this machine: use 127.0.0.1`);
}

/**
 * A change must come from Waybill's own page, or from no page at all. It must also be JSON, which no form can send
 * (protection.ts).
 */
export function checkOrigin(context: Context): void {
  const site = context.req.header('sec-fetch-site');
  if (site !== undefined && site !== 'same-origin' && site !== 'none')
    throw new HttpProblem(403, `a request from another site (${site}) may change nothing`);
  const origin = context.req.header('origin');
  if (origin !== undefined && (!URL.canParse(origin) || new URL(origin).host !== hostOf(context)))
    throw new HttpProblem(403, 'a request from another origin may change nothing');
}

export function addressOf(context: Context): string {
  const { incoming } = context.env as { incoming?: { socket?: { remoteAddress?: string } } };
  return incoming?.socket?.remoteAddress ?? '';
}

function hostOf(context: Context): string {
  return context.req.header('host') ?? '';
}
