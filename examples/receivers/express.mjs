// A receiver of signed webhooks with Express. It comes before express.json(), because it needs the body as it was sent.

import express from 'express';
import { createReceiver } from 'waybill/receiver';

const receiver = createReceiver({ secrets: process.env['WEBHOOK_SECRET'] ?? '' });

export const app = express();
app.post(
  '/webhooks',
  receiver.toNode((event) => {
    console.log(event.topic, event.id, event.body);
  }),
);
app.use(express.json());
