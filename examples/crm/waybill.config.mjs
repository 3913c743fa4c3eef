// Instead of the worker: the same messages by a relay (`waybill start`) or by cron (`waybill drain`, `POST /drain`). To
// Kafka where KAFKA_BROKERS says so, a batch in one call and an outcome for each message; otherwise to a function.

import { batchHandler, defineConfig, kafka } from 'waybill';

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
