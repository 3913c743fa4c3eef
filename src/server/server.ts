// HTTP server. It listens on 127.0.0.1 by default; an address that is not loopback needs authentication (options.ts).

import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { fileURLToPath } from 'node:url';

import { getRequestListener } from '@hono/node-server';

import type { Config } from '../config.js';
import type { Database } from '../database/connection.js';
import type { Replica } from '../features/replicas/replica.js';
import { ConfigurationError } from '../core/errors.js';
import type { ResolvedServerOptions } from './options.js';
import type { DrainReport } from '../relay/drains.js';
import type { Metrics } from '../telemetry/metrics.js';
import type { SleepingPart } from './api/wake.js';
import { createApp } from './app.js';
import { Background } from './background.js';
import { Page } from './page.js';
import { createShardsApp } from '../features/shards/app.js';

export type RunningServer = { url: string; close(): Promise<void> };

export type ServerParts = {
  database: Database;
  /** Answers requests that only read. The caller closes it. */
  replica?: Replica;
  isReady: () => boolean;
  /** The configuration, for routes of features that have options. */
  config?: Partial<Config>;
  metrics?: Metrics;
  /** The relay in this process, if it may sleep. */
  sleeping?: SleepingPart;
  drain?: () => Promise<DrainReport>;
  /** Takes the next free port if the wanted one is busy; `url` says which. */
  nextFreePort?: boolean;
  /** How long an answer stays in the response cache. Default 1,000. */
  sharedForMs?: number;
};

const pageDirectory = fileURLToPath(new URL('../../dist/page/', import.meta.url));

export async function startServer(
  { port, host, authentication, embeddedBy, basePath, singleSignOn, portal }: ResolvedServerOptions,
  {
    database,
    replica,
    isReady,
    config,
    metrics,
    sleeping,
    drain,
    nextFreePort = false,
    sharedForMs,
  }: ServerParts,
): Promise<RunningServer> {
  const background = new Background(database);
  const page = new Page(pageDirectory, { embeddedBy, portal });
  const app = createApp({
    database,
    authentication,
    isReady,
    background,
    ...(singleSignOn && { singleSignOn }),
    ...(replica && { replica }),
    ...(config && { config }),
    ...(page.exists && { page }),
    ...(metrics && { metrics }),
    ...(sleeping && { sleeping }),
    ...(drain && { drain }),
    ...(sharedForMs !== undefined && { sharedForMs }),
  });
  const answer = getRequestListener(app.fetch);
  const server = createServer((request, response) => {
    if (isAtBase(request, response, basePath)) return;
    void answer(request, response);
  });
  return run(server, { host, port, nextFreePort }, [background]);
}

/**
 * Removes the base path from the address of the request, so that everything behind it sees itself at the root. True: the
 * request was for the base path itself and is answered, because the page's addresses are relative to a slash at its end.
 */
function isAtBase(
  request: IncomingMessage,
  response: ServerResponse,
  basePath: string | undefined,
): boolean {
  const { url = '' } = request;
  if (basePath === undefined || !url.startsWith(basePath)) return false;
  const rest = url.slice(basePath.length);
  if (rest === '' || rest.startsWith('?')) {
    response.writeHead(308, { location: `${basePath}/${rest}` }).end();
    return true;
  }
  if (rest.startsWith('/')) request.url = rest;
  return false;
}

/** A part that must be closed together with the port. */
type Running = { close(): Promise<void> };

export type ShardParts = Required<Pick<ServerParts, 'database' | 'metrics' | 'drain'>> & {
  name: string;
  replica?: Replica;
  config?: Partial<Config>;
  isRunning: () => boolean;
  /** Why no relay of this version may serve the shard. */
  refusal?: () => string | undefined;
};

/** One port for several shards: each has its API and its page under /shards/NAME/. */
export async function startShardsServer(
  { port, host, authentication, embeddedBy, basePath, singleSignOn, portal }: ResolvedServerOptions,
  shards: readonly ShardParts[],
  { nextFreePort = false }: Pick<ServerParts, 'nextFreePort'> = {},
): Promise<RunningServer> {
  const page = new Page(pageDirectory, { embeddedBy, portal });
  const running: Running[] = [];
  const answers = new Map<string, ReturnType<typeof getRequestListener>>();
  for (const { name, database, replica, config, isRunning, metrics, drain } of shards) {
    const background = new Background(database);
    running.push(background);
    const app = createApp({
      database,
      ...(replica && { replica }),
      ...(config && { config }),
      authentication,
      ...(singleSignOn && { singleSignOn }),
      isReady: isRunning,
      background,
      metrics,
      drain,
      shard: name,
      ...(page.exists && { page }),
    });
    answers.set(name, getRequestListener(app.fetch));
  }
  const others = getRequestListener(
    createShardsApp(shards, { authentication, ...(singleSignOn && { singleSignOn }) }).fetch,
  );
  const server = createServer((request, response) => {
    if (isAtBase(request, response, basePath)) return;
    const [, name = '', rest = ''] = /^\/shards\/([^/?#]+)(\/.*)$/.exec(request.url ?? '') ?? [];
    const answer = answers.get(name);
    // each shard sees itself at the root, as behind a proxy that strips a prefix
    if (answer !== undefined) request.url = rest;
    void (answer ?? others)(request, response);
  });
  return run(server, { host, port, nextFreePort }, running);
}

async function run(
  server: Server,
  { host, port, nextFreePort }: { host: string; port: number; nextFreePort: boolean },
  running: readonly Running[],
): Promise<RunningServer> {
  const taken = await listen(server, host, port, nextFreePort ? 20 : 0);
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${taken}`,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await Promise.all(running.map((each) => each.close()));
    },
  };
}

async function listen(server: Server, host: string, wanted: number, more: number): Promise<number> {
  for (let port = wanted; ; port += 1) {
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen(port, host, () => {
          server.off('error', reject);
          resolve();
        });
      });
      const address = server.address();
      return typeof address === 'object' && address !== null ? address.port : port;
    } catch (error) {
      const busy = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
      if (!busy) throw error;
      if (port >= wanted + more) {
        throw new ConfigurationError(
          `server.port is ${wanted}, and something listens there already: choose another, or stop it`,
          { cause: error },
        );
      }
    }
  }
}
