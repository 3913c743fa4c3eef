// A server that nothing may reach: it listens on both loopback addresses of this machine, with one port, and
// counts connections.

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
      // free on one address, taken on the other: another one
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    }
  }
}

/** A list written as words. */
export function words(text: string): string[] {
  return text.trim().split(/\s+/);
}
