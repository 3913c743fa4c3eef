// Login of the page: exchanges a token for a cookie that scripts cannot read and other sites cannot use.

import { Hono } from 'hono';
import type { Context } from 'hono';
import { deleteCookie, getCookie, setCookie } from 'hono/cookie';

import { beginSession, endSession } from '../features/tokens/database.js';
import {
  allow,
  authenticate,
  checkSecret,
  forStranger,
  localAccess,
  loginCookieOf,
} from './access.js';
import type { Authenticator } from './access.js';
import { bodyOf } from './protection.js';
import { HttpProblem } from './route.js';

const lifetimeMs = 12 * 3_600_000;

export function sessionRoutes(authenticator: Authenticator): Hono {
  return new Hono()
    .get('/', async (context) => {
      const access = await authenticate(context, authenticator);
      // the portal asks what a tenant token may do
      allow(access, { scope: 'read', forTenants: true, forTenantTokens: true });
      return context.json({ ...access, authentication: authenticator.authentication });
    })
    .post('/', async (context) => {
      if (authenticator.authentication === 'none') return context.json(localAccess);
      const { token } = await bodyOf(context);
      const given = typeof token === 'string' ? token : '';
      const access = (await checkSecret(context, authenticator, given))?.access;
      if (access?.forEndpoints)
        throw new HttpProblem(403, `${access.name} is a tenant token: it cannot log in`);
      const secret = access && (await beginSession(authenticator.database, given, lifetimeMs));
      if (!secret) throw new HttpProblem(401, 'this token is not valid, or has expired');
      setCookie(context, loginCookieOf(context, authenticator), secret, {
        httpOnly: true,
        sameSite: 'Strict',
        path: '/',
        maxAge: lifetimeMs / 1000,
        secure: isSecure(context),
      });
      return context.json(access);
    })
    .delete('/', async (context) => {
      const cookie = loginCookieOf(context, authenticator);
      const secret = getCookie(context, cookie);
      if (secret !== undefined) {
        authenticator.accepted.forget(secret);
        await forStranger(endSession(authenticator.database, secret));
      }
      deleteCookie(context, cookie, { path: '/' });
      return context.json({ loggedOut: true });
    });
}

/** Behind a proxy that terminates TLS, the request itself is plain HTTP. */
function isSecure(context: Context): boolean {
  return (
    new URL(context.req.url).protocol === 'https:' ||
    context.req.header('x-forwarded-proto') === 'https'
  );
}
