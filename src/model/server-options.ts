// Where the HTTP port listens, and who may use it.

import { ConfigurationError } from '../errors.js';
import { checkOptions, choice, integer, optional, text } from './options.js';

export type ServerOptions = {
  /** Default 4980; 0 takes any that is free. */
  port?: number;
  /** The address to listen on. Default 127.0.0.1; another one needs `authentication: 'tokens'`. */
  host?: string;
  /** `tokens`: every request needs one, made with `waybill tokens add`. `none`: whoever is on this machine may do everything. Default `tokens`. */
  authentication?: 'tokens' | 'none';
  /** The database as the port uses it: a login with the roles control and operator, where the relay's has none of their rights. Default: DATABASE_SERVER_URL, or `database.url`. */
  databaseUrl?: string;
};

export const defaultPort = 4980;

export type ResolvedServerOptions = ReturnType<typeof resolveServerOptions>;

export function resolveServerOptions(options: ServerOptions = {}) {
  const checked = checkOptions('server', options, {
    port: integer({ min: 0, max: 65_535, default: defaultPort }),
    host: text({ default: '127.0.0.1', meaning: 'an address, such as 127.0.0.1 or 0.0.0.0' }),
    authentication: choice('tokens', 'none'),
    databaseUrl: optional(text({ meaning: 'a postgresql:// address' })),
  });
  if (checked.authentication === 'none' && !isLoopback(checked.host)) {
    throw new ConfigurationError(
      `server.host is "${checked.host}" and server.authentication is "none": anybody could reach it; use "tokens", or 127.0.0.1`,
    );
  }
  return checked;
}

function isLoopback(host: string): boolean {
  return /^(127(\.\d+){3}|::1|localhost)$/.test(host);
}
