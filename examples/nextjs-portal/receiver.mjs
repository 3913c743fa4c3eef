// Stands for your customer: verifies each event and prints it.

import { createServer } from 'node:http';
import { createReceiver } from 'waybill/receiver';

const receiver = createReceiver({ secrets: process.env.WEBHOOK_SECRET });
const server = createServer(
  receiver.toNode((event) => {
    console.log('received', event.topic, event.body);
  }),
);
server.listen(Number(process.env.PORT ?? 8190), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/`);
});
