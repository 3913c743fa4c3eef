// A receiver of signed webhooks with node:http. Usage, in this repository after `npm run build`:
// WEBHOOK_SECRET=whsec_… or whpk_… PORT=… npx jiti examples/receivers/node.ts

import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { createReceiver } from 'waybill/receiver';

const receiver = createReceiver({ secrets: process.env['WEBHOOK_SECRET'] ?? '' });

const server = createServer(
  receiver.toNode((event) => {
    console.log(event.topic, event.id, event.body);
  }),
);

server.listen(Number(process.env['PORT'] ?? 8080), '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(`listening on http://127.0.0.1:${port}/`);
});
