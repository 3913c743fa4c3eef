// A receiver of signed webhooks with Fastify. It is a plugin, so the other routes keep their own parsers.

import fastify from 'fastify';
import { createReceiver } from 'waybill/receiver';

const receiver = createReceiver({ secrets: process.env['WEBHOOK_SECRET'] ?? '' });

const receive = receiver.toFastify((event) => {
  console.log(event.topic, event.id, event.body);
});

export const app = fastify();
app.register(receive, { url: '/webhooks' });
