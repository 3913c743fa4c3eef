// Database address: checks it before use. It may contain a password, so errors show at most its scheme, and printed
// addresses leave the password out.

import { ConfigurationError } from '../core/errors.js';

const form = 'give postgresql://user:password@host:5432/database';

/** `name` says where the address comes from. The driver also accepts a socket directory as an address. */
export function checkAddress(name: string, address: string | undefined): string | undefined {
  if (address === undefined || /^(\/|socket:)/i.test(address)) return address;
  if (address.trim() === '') throw new ConfigurationError(`${name} is empty: ${form}`);
  const scheme = /^[a-z][a-z0-9+.-]*:\/\//i.exec(address)?.[0];
  if (scheme === undefined)
    throw new ConfigurationError(`${name} is not the address of a database: ${form}`);
  if (!/^postgres(ql)?:/i.test(scheme))
    throw new ConfigurationError(`${name} begins with ${scheme}: ${form}`);
  if (!isReadable(address))
    throw new ConfigurationError(
      `${name} cannot be read: ${form}, with special characters of the password encoded (@ as %40, / as %2F, # as %23)`,
    );
  return address;
}

/** A password with / ? or # would be cut off there, and the rest misread. */
function isReadable(address: string): boolean {
  // a user at a socket: the driver accepts it, URL does not
  const complete = address.replace('@/', '@localhost/');
  if (!URL.canParse(complete)) return false;
  const { username, pathname, search, hash } = new URL(complete);
  return hash === '' && (username !== '' || !`${pathname}${search}`.includes('@'));
}

/** For display: hides too much rather than too little. */
export function withoutPassword(address: string): string {
  return address.replace(/(:\/\/[^:@/]*:).*@/s, '$1…@').replaceAll(/([?&]password=)[^&]*/gi, '$1…');
}
