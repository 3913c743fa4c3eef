// Options of the HTTP server: where it listens, and how clients authenticate.

import { ConfigurationError } from '../core/errors.js';
import { checkOptions, choice, integer, list, optional, text } from '../core/options.js';
import { isLoopback, origin } from './origin.js';
import { resolvePortalOptions } from './portal-options.js';
import type { PortalOptions } from './portal-options.js';

export type ServerOptions = {
  /** The port; 0 takes any free one. Default 4980. */
  port?: number;
  /** The address to listen on; one that is not loopback needs `authentication: 'tokens'`. Default 127.0.0.1. */
  host?: string;
  /** `tokens`: every request needs one, made with `waybill tokens add`. `none`: every process on this machine may do everything. Default `tokens`. */
  authentication?: 'tokens' | 'none';
  /** The address of the database for the server: a login with the roles control and operator, if the relay's login does not have them. Default: DATABASE_SERVER_URL, or `database.url`. */
  databaseUrl?: string;
  /** The origins whose pages may show the page in a frame. The login works there only within one site: the same registrable domain and scheme. Default none. */
  embeddedBy?: readonly string[];
  /** The customer portal at `/portal`. */
  portal?: PortalOptions;
};

export const defaultPort = 4980;

export type ResolvedServerOptions = ReturnType<typeof resolveServerOptions>;

export function resolveServerOptions(options: ServerOptions = {}) {
  const checked = checkOptions('server', options, {
    port: integer({ min: 0, max: 65_535, default: defaultPort }),
    host: text({ default: '127.0.0.1', meaning: 'an address, such as 127.0.0.1 or 0.0.0.0' }),
    authentication: choice('tokens', 'none'),
    databaseUrl: optional(text({ meaning: 'a postgresql:// address' })),
    embeddedBy: optional(list(origin, { min: 1, max: 20 })),
    portal: (_name: string, value: unknown) =>
      resolvePortalOptions(value as PortalOptions | undefined),
  });
  if (checked.authentication === 'none' && !isLoopback(checked.host)) {
    throw new ConfigurationError(
      `server.host is "${checked.host}" and server.authentication is "none": anybody could reach it; use "tokens", or 127.0.0.1`,
    );
  }
  return checked;
}
