// A web server as the receiver of the webhook. It accepts bodies that are small enough, and records the ids.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { webhook } from '../../../src/destinations/webhook/webhook.js';
import type { RunningService, ServiceKind } from './service.js';

const largestBytes = 100_000;

export const webhookService: ServiceKind = {
  kind: 'webhook',
  service: `Node ${process.versions.node}'s HTTP server`,
  unavailable: () => null,
  start: startServer,
  make: ({ host, port }, { missing, picky: _picky, ...settings } = {}) =>
    webhook({
      url: `http://${host}:${port}/${missing ? 'missing' : 'hook'}`,
      allowedNetworks: ['127.0.0.0/8'],
      ...settings,
    }),
  source: ({ host, port }) =>
    `waybill.webhook({ url: 'http://${host}:${port}/hook', allowedNetworks: ['127.0.0.0/8'] })`,
  tooLargeBytes: largestBytes + 1,
  expected: {
    missing: { kind: 'retry', code: 'http_status' },
    oversized: { kind: 'retry', code: 'http_status' },
    refusedInBatch: 'one message a call',
  },
};

async function startServer(): Promise<RunningService> {
  const received: string[] = [];
  const listen = async (port: number): Promise<Server> => {
    const server = createServer((request, response) => {
      let bytes = 0;
      request.on('data', (chunk: Buffer) => (bytes += chunk.length));
      request.on('end', () => {
        if (request.url !== '/hook') return void response.writeHead(404).end();
        if (bytes > largestBytes) return void response.writeHead(413).end();
        received.push(String(request.headers['webhook-id']));
        response.writeHead(204).end();
      });
    }).listen(port, '127.0.0.1');
    await once(server, 'listening');
    return server;
  };
  let server = await listen(0);
  const address = { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
  const stop = async (): Promise<void> => {
    const closed = once(server, 'close');
    server.close();
    server.closeAllConnections();
    await closed;
  };
  return {
    address,
    received: () => Promise.resolve([...received]),
    kill: stop,
    restart: async () => void (server = await listen(address.port)),
    stop,
  };
}
