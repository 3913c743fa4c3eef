// A receiver of signed webhooks with Hono.

import { Hono } from 'hono';
import { createReceiver } from 'waybill/receiver';

const receiver = createReceiver({ secrets: process.env['WEBHOOK_SECRET'] ?? '' });

const receive = receiver.toFetch((event) => {
  console.log(event.topic, event.id, event.body);
});

export const app = new Hono();
app.post('/webhooks', (context) => receive(context.req.raw));
