// A webhook whose receiver accepts connections and never answers: the calls obey their timeout while the connection is
// still being made, so the relay does not report the destination as hung.

import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { expect, it, onTestFinished } from 'vitest';

import { webhook } from '../../src/destinations/webhook/webhook.js';
import { testDatabase } from '../support/postgres.js';
import { loopback } from '../support/relay-partner.js';
import { numbered, send, startRelay, untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

it('P9 calls that time out while their connection is being made are not reported as hung', async () => {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const silent = webhook({
    url: `https://127.0.0.1:${port}/`,
    allowedNetworks: loopback,
    concurrency: 2,
    timeoutMs: 200,
    retry: { delaysMs: [1] },
  });
  const relay = await startRelay(db, { destinations: { silent } });
  await send(db, numbered('silent', 4));
  await untilPlaces(db, 'silent', { dead: 4, waiting: 0, leased: 0 });
  expect(relay.of('destination_hung')).toEqual([]);
  // each try opened its own connection
  await waitFor(() => sockets.size === 8, { what: 'eight connections' });
});
