// Stand-in for n8n: keeps the bodies that it accepted, and answers as configured.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { json } from 'node:stream/consumers';

/** @param {(body: { event: string, data: Record<string, unknown>, timestamp: string }) => number} [answer] the status */
export async function startReceiver(answer = () => 200) {
  const received = [];
  const server = createServer((request, response) => {
    json(request).then(
      (body) => {
        const status = answer(body);
        if (status < 300) received.push(body);
        response.writeHead(status).end(status < 300 ? 'thanks' : 'not now');
      },
      () => response.destroy(),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}/webhook/registrations`,
    received,
    async stop() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}
