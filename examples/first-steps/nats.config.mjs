// Messages into a stream of NATS JetStream.

import { defineConfig, nats } from 'waybill';

export default defineConfig({
  destinations: {
    orders: nats({
      servers: 'nats://localhost:4222',
      subject: 'shop.{topic}',
      // a subject that leads to another stream is a failure
      stream: 'SHOP',
      ...(process.env.NATS_TOKEN && { token: process.env.NATS_TOKEN }),
    }),
  },
  routes: [{ topic: 'order.*', to: 'orders' }],
});
