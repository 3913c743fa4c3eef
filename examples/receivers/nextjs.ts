// A receiver of signed webhooks as a route handler of Next.js: app/webhooks/route.ts.

import { createReceiver } from 'waybill/receiver';

const receiver = createReceiver({ secrets: process.env['WEBHOOK_SECRET'] ?? '' });

export const POST = receiver.toFetch((event) => {
  console.log(event.topic, event.id, event.body);
});
