// Messages into a stream of NATS JetStream.

import { defineConfig } from 'waybill';
import { nats } from 'waybill/nats';

export default defineConfig({
  destinations: {
    orders: nats({
      servers: 'nats://localhost:4222',
      subject: 'shop.{topic}',
      // if the subject leads to another stream, the delivery fails
      stream: 'SHOP',
      ...(process.env.NATS_TOKEN && { token: process.env.NATS_TOKEN }),
    }),
  },
  routes: [{ topic: 'order.*', to: 'orders' }],
});
