// Guarded connector of webhooks: protects against SSRF and DNS rebinding. It resolves a name, checks every address, and
// connects to one of the checked addresses, never to the result of a second look-up. The certificate and the Host
// header are still those of the name. A configured proxy gets the checked address. Proxies from the environment are not
// used.

import { lookup as systemLookup, promises as dns } from 'node:dns';
import type { LookupAddress, LookupOptions } from 'node:dns';
import { isIP } from 'node:net';
import type { Socket } from 'node:net';

import type { buildConnector } from 'undici';

import { errorText } from '../../core/errors.js';
import type { TlsOptions } from '../credentials.js';
import { openTunnel } from './proxy.js';
import type { Proxy } from './proxy.js';
import { problemWith, TargetRefusedError } from './targets.js';
import type { Networks } from './targets.js';

type BuildConnector = typeof buildConnector;
export type Connect = buildConnector.connector;

export type ConnectorOptions = {
  readonly allowed: Networks;
  /** undefined: the system resolves names. */
  readonly dnsServers: readonly string[] | undefined;
  /** The time for a connection, including the look-up of its address and the TLS handshake. */
  readonly timeoutMs: number;
  /** undefined: connections are direct. */
  readonly proxy?: Proxy | undefined;
  readonly tls?: TlsOptions | undefined;
};

export type Connector = {
  readonly connect: Connect;
  /** Cancels unanswered DNS queries and unfinished connections. */
  close(): void;
};

export function guardedConnector(
  build: BuildConnector,
  { allowed, dnsServers: servers, timeoutMs, proxy, tls }: ConnectorOptions,
): Connector {
  const { resolve, cancel } =
    servers === undefined
      ? { resolve: resolveAsSystem, cancel: () => {} }
      : resolverOf(servers, timeoutMs);
  const resolveChecked = async (name: string): Promise<LookupAddress[]> => {
    const addresses = await resolve(name);
    for (const { address } of addresses) {
      const problem = problemWith(address, allowed);
      if (problem !== undefined)
        // customers read this: without the address, it tells them nothing about the names of an internal network
        throw new TargetRefusedError(`${name} leads to an address that ${problem}`);
    }
    return addresses;
  };
  const lookup = (name: string, options: LookupOptions, answer: LookupAnswer): void => {
    resolveChecked(name).then(
      (addresses) => {
        const [first] = addresses;
        if (options.all === true) answer(null, addresses);
        else answer(null, first?.address ?? '', first?.family ?? 0);
      },
      (error: unknown) => answer(error as Error, ''),
    );
  };
  // undici's own timeout comes up to a second late: the aborted call would hold its slot for nothing
  const connect = build({ timeout: 0, lookup, ...tls });
  /** Ends connections that are not open yet; undici does not know them. */
  const connecting = new Set<(reason: Error) => void>();
  const connectChecked: Connect = (options, answer) => {
    // an IP address is connected to without a look-up, so it is checked here
    const { hostname } = options;
    const problem = isIP(hostname) === 0 ? undefined : problemWith(hostname, allowed);
    if (problem !== undefined)
      return answer(new TargetRefusedError(`${hostname} ${problem}`), null);
    const end = (proxy === undefined ? connectDirectly : connectThrough(proxy))(
      options,
      (...result) => {
        clearTimeout(timer);
        connecting.delete(end);
        answer(...result);
      },
    );
    const timer = setTimeout(() => end(timedOut(timeoutMs)), timeoutMs);
    connecting.add(end);
  };
  const connectDirectly: Start = (options, answer) => {
    // undici returns the socket, although its types do not say so
    const socket = connect(options, answer) as unknown as Socket;
    return (reason) => void socket.destroy(reason);
  };
  const connectThrough =
    (through: Proxy): Start =>
    (options, answer) => {
      const { hostname, protocol, port } = options;
      const ended = new AbortController();
      const { signal } = ended;
      const tunnel = async (): Promise<Socket> => {
        const addresses =
          isIP(hostname) === 0
            ? (await resolveChecked(hostname)).map(({ address }) => address)
            : [hostname];
        signal.throwIfAborted();
        const to = Number(port) || (protocol === 'https:' ? 443 : 80);
        return openTunnel(through, addresses, to, { ca: tls?.ca, signal });
      };
      const opened = tunnel().then((socket) => {
        const cut = (): void => void socket.destroy();
        if (signal.aborted) cut();
        else signal.addEventListener('abort', cut);
        return protocol === 'https:' ? secured(connect, options, socket) : socket;
      });
      const aborted = new Promise<never>((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      });
      Promise.race([opened, aborted]).then(
        (socket) => answer(null, socket),
        (error: unknown) => answer(error as Error, null),
      );
      return (reason) => ended.abort(reason);
    };
  const close = (): void => {
    cancel();
    for (const end of connecting) end(new Error('the webhook is closing'));
  };
  return { connect: connectChecked, close };
}

/** Begins a connection; returns how to end it before it is open. */
type Start = (
  options: buildConnector.Options,
  answer: buildConnector.Callback,
) => (reason: Error) => void;

/** TLS over a tunnel, with the certificate of the name. */
function secured(connect: Connect, options: buildConnector.Options, tunnel: Socket) {
  return new Promise<Socket>((resolve, reject) => {
    connect({ ...options, httpSocket: tunnel }, (error, socket) => {
      if (error === null) resolve(socket);
      else reject(error);
    });
  });
}

function timedOut(timeoutMs: number): Error {
  const error = new Error(`no connection within ${timeoutMs} ms`);
  return Object.assign(error, { code: 'UND_ERR_CONNECT_TIMEOUT' });
}

type LookupAnswer = (
  error: Error | null,
  address: string | LookupAddress[],
  family?: number,
) => void;

/** One query at a time for each name: the system's resolver has few threads, which the whole process shares. */
const lookups = new Map<string, Promise<LookupAddress[]>>();

function resolveAsSystem(name: string): Promise<LookupAddress[]> {
  const known = lookups.get(name);
  if (known !== undefined) return known;
  const answer = askSystem(name).finally(() => lookups.delete(name));
  lookups.set(name, answer);
  return answer;
}

function askSystem(name: string): Promise<LookupAddress[]> {
  return new Promise((resolve, reject) => {
    systemLookup(name, { all: true, verbatim: true }, (error, addresses) => {
      if (error === null) resolve(addresses);
      else reject(error);
    });
  });
}

const loopback: LookupAddress[] = [
  { address: '127.0.0.1', family: 4 },
  { address: '::1', family: 6 },
];

/** The name has no address of this family. */
const noAddressCodes = new Set(['ENODATA', 'ENOTFOUND']);

/** Queries both address families. If one does not answer, the look-up fails: its addresses might be forbidden. */
function resolverOf(servers: readonly string[], timeoutMs: number) {
  // made on demand: it costs more than a connection, and an IP address needs none
  let made: dns.Resolver | undefined;
  const makeResolver = (): dns.Resolver => {
    const resolver = new dns.Resolver({ timeout: Math.ceil(timeoutMs / 2), tries: 2 });
    resolver.setServers(servers);
    return resolver;
  };
  const ask = async (asked: Promise<string[]>, family: 4 | 6): Promise<LookupAddress[]> => {
    try {
      return (await asked).map((address) => ({ address, family }));
    } catch (error) {
      if (noAddressCodes.has((error as NodeJS.ErrnoException).code ?? '')) return [];
      throw error;
    }
  };
  const resolve = async (name: string): Promise<LookupAddress[]> => {
    // always this machine, whatever a name server says
    if (/(^|\.)localhost\.?$/i.test(name)) return loopback;
    const resolver = (made ??= makeResolver());
    const [six, four] = await Promise.all([
      ask(resolver.resolve6(name), 6),
      ask(resolver.resolve4(name), 4),
    ]);
    const addresses = [...four, ...six];
    if (addresses.length > 0) return addresses;
    throw Object.assign(new Error(`${name} has no address`), { code: 'ENOTFOUND' });
  };
  return { resolve, cancel: () => made?.cancel() };
}

/** Checks whether a connection can be made now; sends nothing over it. */
export function canConnect(
  connect: Connect,
  url: URL,
  signal: AbortSignal,
): Promise<string | null> {
  return new Promise((resolve) => {
    const onAbort = (): void => resolve('it took too long');
    signal.addEventListener('abort', onAbort, { once: true });
    const { host, hostname, protocol, port } = url;
    const bare = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
    connect({ host, hostname: bare, protocol, port }, (error, socket) => {
      signal.removeEventListener('abort', onAbort);
      socket?.destroy();
      resolve(error === null ? null : errorText(error));
    });
  });
}
