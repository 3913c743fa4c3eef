// A server that no request may reach: it listens on both loopback addresses with one port, and counts connections.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo, Server } from 'node:net';

import { onTestFinished } from 'vitest';

export async function trap(): Promise<{
  port: number;
  connections: () => number;
  hosts: string[];
}> {
  let connections = 0;
  const hosts: string[] = [];
  const listen = async (host: string, port: number): Promise<number> => {
    const server: Server = createServer((request, response) => {
      hosts.push(String(request.headers.host));
      request.resume();
      response.end();
    });
    server.on('connection', () => (connections += 1));
    server.listen(port, host);
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    return (server.address() as AddressInfo).port;
  };
  for (;;) {
    const port = await listen('::1', 0);
    try {
      await listen('127.0.0.1', port);
      return { port, connections: () => connections, hosts };
    } catch (error) {
      // the port is free on one address and taken on the other: try another
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    }
  }
}

/** Formats a list as words. */
export function words(text: string): string[] {
  return text.trim().split(/\s+/);
}
