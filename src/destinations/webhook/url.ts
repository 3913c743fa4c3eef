// The address of a webhook, checked when it is made. What follows its host may be a secret, and is never shown.

import { isIP } from 'node:net';

import { refuse } from '../../model/options.js';
import { problemWith } from './targets.js';
import type { Networks } from './targets.js';

/** A kind of option. */
export function webhookUrl(name: string, value: unknown): URL {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url !== null && (url.username !== '' || url.password !== '')) {
    // the value is not shown: it holds a secret
    return refuse(
      name,
      `${url.protocol}//…@${url.host}`,
      'put credentials into headers, not into the address',
    );
  }
  if (url === null || !/^https?:$/.test(url.protocol)) {
    // what follows the scheme may hold a secret
    return refuse(
      name,
      url === null ? (typeof value === 'string' ? '…' : value) : `${url.protocol}…`,
      'give an http:// or https:// address',
    );
  }
  return url;
}

/**
 * An address can be judged at once; a name when it is resolved, each time. URL has turned every spelling of an
 * IPv4 address, hexadecimal, octal or short, into the usual one.
 */
export function refuseTarget(
  { protocol, host, hostname }: URL,
  allowed: Networks,
  name = 'webhook.url',
): void {
  const address = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
  const problem = isIP(address) === 0 ? undefined : problemWith(address, allowed);
  if (problem !== undefined) refuse(name, `${protocol}//${host}/…`, `${address} ${problem}`);
}
