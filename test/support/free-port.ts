// Finds a port of this machine that no process listens on. It is below the ports that the system gives to outgoing
// connections: one of those could be taken between this look and the start of the server that wants it.

import { once } from 'node:events';
import { createServer } from 'node:net';

const lowest = 10_000;
const beforeOutgoing = 32_768;

export async function freePort(): Promise<number> {
  for (;;) {
    const port = lowest + Math.floor(Math.random() * (beforeOutgoing - lowest));
    const server = createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    server.close();
    await once(server, 'close');
    return port;
  }
}
