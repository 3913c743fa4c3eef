// Who is asking: a bearer token, or the cookie of a login made with one. And whether the request comes from where it
// should: a page of somebody else's must not be able to act through an operator's browser.

import type { Context } from 'hono';
import { getCookie } from 'hono/cookie';

import type { Database } from '../database/connection.js';
import { findAccess } from '../database/tokens.js';
import type { Access, Scope } from '../database/tokens.js';
import type { Attempts } from './attempts.js';
import { HttpProblem } from './route.js';

const sessionCookie = 'waybill_session';

/** The name of the cookie that a login leaves; shards share a host, and their logins must not take each other's place. */
export function sessionCookieOf(shard: string | undefined): string {
  return shard === undefined ? sessionCookie : `${sessionCookie}_${shard}`;
}

/** On loopback without authentication, everybody on this machine may do everything. */
export const everybody: Access = { name: 'local', scope: 'admin', tenantId: null };

const rank: Record<Scope, number> = { read: 0, operate: 1, admin: 2 };

export type Guard = {
  readonly database: Database;
  readonly authentication: 'tokens' | 'none';
  readonly attempts: Attempts;
  /** The name of the cookie that a login leaves. */
  readonly cookie: string;
};

/** The secret that came with the request, if any. */
export function secretOf(context: Context, { cookie }: Pick<Guard, 'cookie'>): string | undefined {
  const header = context.req.header('authorization');
  if (header !== undefined) return /^Bearer +(\S+)$/i.exec(header)?.[1] ?? '';
  return getCookie(context, cookie);
}

export async function findOut(context: Context, guard: Guard): Promise<Access> {
  if (guard.authentication === 'none') return everybody;
  const secret = secretOf(context, guard);
  if (secret === undefined)
    throw new HttpProblem(401, 'log in, or send a token: Authorization: Bearer …');
  const access = await guard.attempts.look(addressOf(context), () =>
    findAccess(guard.database, secret),
  );
  if (access !== null) return access;
  throw new HttpProblem(401, 'the token or the login is not valid, or has expired');
}

export function allow(access: Access, scope: Scope, forTenants: boolean): void {
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
}

/** Without authentication only names of this machine are answered: a name that was rebound to it is not one. */
export function checkHost(
  context: Context,
  { authentication }: Pick<Guard, 'authentication'>,
): void {
  if (authentication === 'tokens') return;
  const host = hostOf(context);
  if (!/^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/i.test(host))
    throw new HttpProblem(403, `${host} is not a name of this machine: use 127.0.0.1`);
}

/** A change is asked for in JSON, which no form can send, and by a page of our own or by no page at all. */
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
