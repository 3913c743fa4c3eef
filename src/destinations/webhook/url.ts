// Address of a webhook, checked when the webhook is made. The part after the host may be a secret and is never shown.

import { isIP } from 'node:net';

import { refuse } from '../../core/options.js';
import { problemWith } from './targets.js';
import type { Networks } from './targets.js';

/** Many servers and proxies reject longer addresses. */
const longestUrlBytes = 2048;

/** Option kind: the address of a webhook. */
export function webhookUrl(name: string, value: unknown): URL {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url !== null && (url.username !== '' || url.password !== '')) {
    // the value is not shown: it contains a secret
    return refuse(
      name,
      `${url.protocol}//…@${url.host}`,
      'put credentials into headers, not into the address',
    );
  }
  if (url === null || !/^https?:$/.test(url.protocol)) {
    // the value is not shown: the part after the scheme may contain a secret
    return refuse(
      name,
      url === null ? (typeof value === 'string' ? '…' : value) : `${url.protocol}…`,
      'give an http:// or https:// address',
    );
  }
  if (Buffer.byteLength(url.href) > longestUrlBytes)
    refuse(name, `${url.origin}/…`, `give an address of at most ${longestUrlBytes} bytes`);
  return url;
}

/**
 * Refuses an IP address that is not allowed. A name is checked each time that it is resolved. The URL parser has
 * normalized every form of an IPv4 address (hexadecimal, octal, short).
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
