// Pool of the connections of webhooks to one origin. Every connection is checked: see connector.ts.

import type { Pool } from 'undici';

import { guardedConnector } from './connector.js';
import type { Connector } from './connector.js';
import type { CheckedWebhook } from './options.js';

/** The connect timeout, as a part of the call's timeout: while it connects, a call cannot be aborted. */
const connectShare = 0.9;
const longestConnectMs = 10_000;

/** Connections to one origin. */
export type OpenPool = {
  readonly pool: Pool;
  readonly connector: Connector;
  close(): Promise<void>;
};

export type PoolOptions = Pick<
  CheckedWebhook,
  'allowedNetworks' | 'dnsServers' | 'timeoutMs' | 'proxy' | 'tls'
> & {
  /** At most this many connections; null: as many as there are calls at once. */
  connections: number | null;
};

export type PoolOpener = (origin: string, options: PoolOptions) => Promise<OpenPool>;

export const openPool: PoolOpener = async (origin, options) => {
  const { allowedNetworks: allowed, dnsServers: servers, timeoutMs, connections } = options;
  const { proxy, tls } = options;
  // Imported on demand: it is half of what the command line would load to start. By its file: under the plain name
  // Bun has a module of its own, without pools.
  const { buildConnector, Pool: UndiciPool } = await import('undici/index.js');
  const connector = guardedConnector(buildConnector, {
    allowed,
    dnsServers: servers,
    timeoutMs: Math.min(Math.ceil(timeoutMs * connectShare), longestConnectMs),
    proxy,
    tls,
  });
  // A plain list of clients would save a twentieth of a request. But it would have to repeat what the pool does:
  // let a connection rest before the receiver could have closed it, and drop a client that could not connect.
  const pool = new UndiciPool(origin, {
    connections,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    connect: connector.connect,
  });
  const close = async (): Promise<void> => {
    connector.close();
    await pool.destroy();
  };
  return { pool, connector, close };
};
