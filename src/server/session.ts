// The login of the page: a token is exchanged for a cookie that no script can read and no other site can use.

import { Hono } from 'hono';
import type { Context } from 'hono';
import { deleteCookie, getCookie, setCookie } from 'hono/cookie';

import { beginSession, endSession, findAccess } from '../database/tokens.js';
import { addressOf, everybody, findOut } from './access.js';
import type { Guard } from './access.js';
import { bodyOf } from './protection.js';
import { HttpProblem } from './route.js';

const lifetimeMs = 12 * 3_600_000;

export function sessionRoutes(guard: Guard): Hono {
  return new Hono()
    .get('/', async (context) => {
      const access = await findOut(context, guard);
      return context.json({ ...access, authentication: guard.authentication });
    })
    .post('/', async (context) => {
      if (guard.authentication === 'none') return context.json(everybody);
      const { token } = await bodyOf(context);
      const secret = await guard.attempts.look(addressOf(context), async () =>
        typeof token === 'string' ? beginSession(guard.database, token, lifetimeMs) : null,
      );
      if (secret === null) throw new HttpProblem(401, 'this token is not valid, or has expired');
      setCookie(context, guard.cookie, secret, {
        httpOnly: true,
        sameSite: 'Strict',
        path: '/',
        maxAge: lifetimeMs / 1000,
        secure: isSecure(context),
      });
      return context.json(await findAccess(guard.database, secret));
    })
    .delete('/', async (context) => {
      const secret = getCookie(context, guard.cookie);
      if (secret !== undefined) await endSession(guard.database, secret);
      deleteCookie(context, guard.cookie, { path: '/' });
      return context.json({ loggedOut: true });
    });
}

/** Behind a proxy that ends TLS, the request itself is plain. */
function isSecure(context: Context): boolean {
  return (
    new URL(context.req.url).protocol === 'https:' ||
    context.req.header('x-forwarded-proto') === 'https'
  );
}
