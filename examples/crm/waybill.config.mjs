// Replaces the worker: a relay (`waybill start`) or cron (`waybill drain`, `POST /drain`) delivers the same messages.
// With KAFKA_BROKERS, to Kafka, a batch in one call with an outcome per message; otherwise to a function.

import { batchHandler, defineConfig } from 'waybill';
import { kafka } from 'waybill/kafka';

const brokers = process.env.KAFKA_BROKERS?.split(',');

export default defineConfig({
  destinations: {
    crm:
      brokers === undefined
        ? batchHandler((messages) => {
            for (const { id, topic, tenantId } of messages)
              console.log(`published ${id}: ${topic} of ${tenantId}`);
          })
        : kafka({ brokers, topic: 'crm.{topic}' }),
  },
  routes: [{ topic: '*', to: 'crm' }],
});
