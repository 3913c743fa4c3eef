// HTTP CONNECT proxy of webhooks. The relay resolves and checks the receiver's name itself, and asks the proxy for a
// tunnel to the checked address, so a proxy does not weaken the protection against SSRF. No error shows the address or
// the credentials of the proxy, because customers can read the attempts of their endpoints.

import { request as requestPlain, STATUS_CODES } from 'node:http';
import { request as requestSecure } from 'node:https';
import { isIP, isIPv6 } from 'node:net';
import type { Socket } from 'node:net';

import { refuse } from '../../core/options.js';

export type Proxy = {
  readonly protocol: 'http:' | 'https:';
  readonly host: string;
  readonly port: number;
  /** The value of `proxy-authorization`, if there are credentials. */
  readonly authorization: string | undefined;
};

const meaning = 'give an address such as http://proxy.example.com:3128, without a path';
const usualPorts = { 'http:': 80, 'https:': 443 };

/** Option kind: the address of a proxy. Its user and password are never shown. */
export function webhookProxy(name: string, value: unknown): Proxy | undefined {
  if (value === undefined) return undefined;
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url === null) return refuse(name, typeof value === 'string' ? '…' : value, meaning);
  const { protocol, hostname, port, username, password, pathname, search, hash } = url;
  if ((protocol !== 'http:' && protocol !== 'https:') || `${pathname}${search}${hash}` !== '/')
    return refuse(name, `${protocol}…`, meaning);
  return {
    protocol,
    host: hostname.startsWith('[') ? hostname.slice(1, -1) : hostname,
    port: port === '' ? usualPorts[protocol] : Number(port),
    authorization: username === '' && password === '' ? undefined : basic(name, username, password),
  };
}

function basic(name: string, username: string, password: string): string {
  try {
    const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
    return `Basic ${Buffer.from(credentials).toString('base64')}`;
  } catch {
    return refuse(name, '…', 'percent-encode the user and the password of the proxy');
  }
}

/** The proxy cannot be reached, or gives no tunnel. */
export class ProxyError extends Error {
  override readonly name = 'ProxyError';
  readonly code: 'PROXY_UNREACHABLE' | 'PROXY_REFUSED';
  /** Whether the proxy could not reach this address; another one of the receiver may work. */
  readonly isUnreached: boolean;

  constructor(code: ProxyError['code'], message: string, isUnreached = false) {
    super(message);
    this.code = code;
    this.isUnreached = isUnreached;
  }
}

/** A tunnel to the first address that the proxy reaches. The addresses were checked. */
export async function openTunnel(
  proxy: Proxy,
  addresses: readonly string[],
  port: number,
  { ca, signal }: { ca: string | undefined; signal: AbortSignal },
): Promise<Socket> {
  let failure: unknown;
  // many proxies have no IPv6
  for (const address of addresses.toSorted((a, b) => Number(isIPv6(a)) - Number(isIPv6(b)))) {
    try {
      return await tunnelTo(
        proxy,
        isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`,
        {
          ca,
          signal,
        },
      );
    } catch (error) {
      if (!(error instanceof ProxyError && error.isUnreached)) throw error;
      failure = error;
    }
  }
  throw failure;
}

function tunnelTo(
  { protocol, host, port, authorization }: Proxy,
  target: string,
  { ca, signal }: { ca: string | undefined; signal: AbortSignal },
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const request = (protocol === 'https:' ? requestSecure : requestPlain)({
      host,
      port,
      method: 'CONNECT',
      path: target,
      headers: {
        host: target,
        ...(authorization !== undefined && { 'proxy-authorization': authorization }),
      },
      agent: false,
      signal,
      // without it, Node would expect the target's name in the certificate of the proxy
      servername: isIP(host) === 0 ? host : '',
      ...(ca !== undefined && { ca }),
    });
    // for every status: a response to CONNECT has no body
    request.once('connect', ({ statusCode: status = 0 }, socket, head) => {
      // an error before the socket has its next owner would end the process
      socket.on('error', () => {});
      if (status < 200 || status > 299) {
        socket.destroy();
        const words = `the proxy answered ${status} ${STATUS_CODES[status] ?? ''}`.trimEnd();
        return reject(new ProxyError('PROXY_REFUSED', words, status >= 500));
      }
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    request.on('error', (error: NodeJS.ErrnoException) => {
      const why = signal.aborted ? (signal.reason as Error) : unreachable(error);
      reject(why);
    });
    request.end();
  });
}

function unreachable({ code, name }: NodeJS.ErrnoException): ProxyError {
  return new ProxyError('PROXY_UNREACHABLE', `the proxy cannot be reached (${code ?? name})`);
}
