// Messages to Kafka: each to the Kafka topic with its name, and orders also as CloudEvents.

import { defineConfig } from 'waybill';
import { kafka } from 'waybill/kafka';

export default defineConfig({
  destinations: {
    // user.registered goes to the Kafka topic user.registered
    events: kafka({
      brokers: ['kafka-1.example.com:9093', 'kafka-2.example.com:9093'],
      topic: '{topic}',
      compression: 'lz4',
      tls: true,
      sasl: {
        mechanism: 'scram-sha-512',
        username: 'waybill',
        password: process.env.KAFKA_PASSWORD,
      },
    }),
    orders: kafka({
      brokers: ['localhost:9092'],
      topic: 'orders',
      format: 'cloudevents',
      source: '/shop',
    }),
  },
  routes: [
    { topic: '*', to: 'events' },
    { topic: 'order.*', to: 'orders' },
  ],
});
