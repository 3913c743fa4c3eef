// Messages to an exchange of RabbitMQ.

import { defineConfig } from 'waybill';
import { rabbitmq } from 'waybill/rabbitmq';

export default defineConfig({
  destinations: {
    orders: rabbitmq({
      url: process.env.RABBITMQ_URL ?? 'amqp://localhost:5672',
      exchange: 'shop',
      routingKey: '{topic}',
    }),
  },
  routes: [{ topic: 'order.*', to: 'orders' }],
});
