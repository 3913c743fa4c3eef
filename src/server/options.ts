// Options of the HTTP server: where it listens, and how clients authenticate.

import { ConfigurationError } from '../core/errors.js';
import { checkOptions, choice, integer, list, optional, text, whenGiven } from '../core/options.js';
import { mostPayloadFields, payloadField } from '../listing/payload-filter.js';
import { isLoopback, origin } from './origin.js';
import { resolvePortalOptions } from './portal-options.js';
import type { PortalOptions } from './portal-options.js';
import { resolveSingleSignOn } from './single-sign-on.js';
import type { SingleSignOnOptions } from './single-sign-on.js';

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
  /** The path under which a proxy serves this port without removing it, such as `/waybill`. Requests without it are answered too, for probes. Default: none. */
  basePath?: string;
  /** Users whom a proxy has authenticated need no token. Tokens still work. Default: none. */
  singleSignOn?: SingleSignOnOptions;
  /** Fields of payloads by which messages can be searched, such as `orderId` or `customer.email`. A token that reads messages may search them. Default none. */
  searchablePayloadFields?: readonly string[];
  /** The customer portal at `/portal`. */
  portal?: PortalOptions;
};

export const defaultPort = 4980;

const payloadFields = list(payloadField, { min: 1, max: mostPayloadFields });

export type ResolvedServerOptions = ReturnType<typeof resolveServerOptions>;

export function resolveServerOptions(options: ServerOptions = {}) {
  const checked = checkOptions('server', options, {
    port: integer({ min: 0, max: 65_535, default: defaultPort }),
    host: text({ default: '127.0.0.1', meaning: 'an address, such as 127.0.0.1 or 0.0.0.0' }),
    authentication: choice('tokens', 'none'),
    databaseUrl: optional(text({ meaning: 'a postgresql:// address' })),
    embeddedBy: optional(list(origin, { min: 1, max: 20 })),
    basePath: optional(
      text({
        pattern: /^(\/[A-Za-z0-9._~-]+)+$/,
        meaning: 'a path such as /waybill, without a slash at its end',
      }),
    ),
    singleSignOn: whenGiven(resolveSingleSignOn),
    searchablePayloadFields: optional(payloadFields),
    portal: (_name: string, value: unknown) =>
      resolvePortalOptions(value as PortalOptions | undefined),
  });
  if (checked.authentication === 'none' && !isLoopback(checked.host)) {
    throw new ConfigurationError(
      `server.host is "${checked.host}" and server.authentication is "none": anybody could reach it; use "tokens", or 127.0.0.1`,
    );
  }
  if (checked.authentication === 'none' && checked.singleSignOn !== undefined) {
    throw new ConfigurationError(
      'server.singleSignOn is set and server.authentication is "none": every process could do everything without signing on; use "tokens"',
    );
  }
  return checked;
}
