// The HTTP port: /healthz (status, its reasons and counts, as JSON) and /readyz. It listens on loopback only:
// there is no authentication yet, and what it says is for this machine.

import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';

import type { Database } from '../database/connection.js';
import { readHealth } from '../database/reports.js';
import { errorText } from '../errors.js';

export type HealthServerOptions = {
  database: Database;
  port: number;
  isReady: () => boolean;
  /** Answers other requests; returns false for those that are not its own. */
  more?: (request: IncomingMessage, response: ServerResponse) => boolean;
};

export type HealthServer = { url: string; close(): Promise<void> };

/** Takes the next free port when the wanted one is busy; `url` says which. */
export async function startHealthServer(options: HealthServerOptions): Promise<HealthServer> {
  const server = createServer((request, response) => {
    answer(options, request, response).catch((error: unknown) => {
      if (!response.headersSent)
        sendJson(response, 503, { status: 'down', error: errorText(error) });
    });
  });
  const port = await listen(server, options.port);
  return {
    url: `http://127.0.0.1:${port}`,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function answer(
  { database, isReady, more }: HealthServerOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (more?.(request, response)) return;
  if (request.method !== 'GET' && request.method !== 'HEAD')
    return sendJson(response, 405, { error: 'only GET is answered here' });
  const { pathname } = new URL(request.url ?? '/', 'http://localhost');
  if (pathname === '/healthz') {
    const health = await readHealth(database);
    const counts = Object.fromEntries(health.map(({ metric, value }) => [metric, value]));
    const reasons = health.map(({ alarm }) => alarm).filter((alarm) => alarm !== null);
    // still 200: another instance would find the same, and restarting this one helps nobody
    return sendJson(response, 200, {
      status: reasons.length === 0 ? 'ok' : 'degraded',
      reasons,
      counts,
    });
  }
  if (pathname === '/readyz') {
    const ready = isReady();
    return sendJson(response, ready ? 200 : 503, { ready });
  }
  if (pathname === '/') return sendJson(response, 200, { waybill: 'see /healthz and /readyz' });
  sendJson(response, 404, { error: `${pathname} is not here: see /healthz and /readyz` });
}

function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' });
  response.end(`${JSON.stringify(body)}\n`);
}

async function listen(server: Server, wanted: number): Promise<number> {
  for (let port = wanted; ; port += 1) {
    try {
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen(port, '127.0.0.1', () => {
          server.off('error', reject);
          resolve();
        });
      });
      const address = server.address();
      return typeof address === 'object' && address !== null ? address.port : port;
    } catch (error) {
      const busy = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
      if (!busy || port >= wanted + 20) throw error;
    }
  }
}
