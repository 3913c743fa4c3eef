// The address of a database, checked before it is used. It may have a password in it: errors show its scheme
// at most, and what is printed leaves the password out.

import { ConfigurationError } from '../errors.js';

const form = 'give postgresql://user:password@host:5432/database';

/** `name` says where the address comes from. A directory of sockets is one too, as the driver has it. */
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

/** A password with / ? or # in it would be cut there, and its rest be taken for something else. */
function isReadable(address: string): boolean {
  // a user at a socket, which the driver takes and URL does not
  const complete = address.replace('@/', '@localhost/');
  if (!URL.canParse(complete)) return false;
  const { username, pathname, search, hash } = new URL(complete);
  return hash === '' && (username !== '' || !`${pathname}${search}`.includes('@'));
}

/** For the screen: rather too little is shown than too much. */
export function withoutPassword(address: string): string {
  return address.replace(/(:\/\/[^:@/]*:).*@/s, '$1…@').replaceAll(/([?&]password=)[^&]*/gi, '$1…');
}
