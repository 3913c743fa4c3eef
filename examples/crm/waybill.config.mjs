// Replaces the worker: a relay (`waybill start`) or cron (`waybill drain`, `POST /drain`) delivers the same messages.
// With KAFKA_BROKERS, to Kafka, a batch in one call with an outcome per message; otherwise to a function.

import { batchHandler, defineConfig } from 'waybill';
import { kafka } from 'waybill/kafka';

const brokers = process.env.KAFKA_BROKERS?.split(',');
// as in schema.sql
const retry = { maxAttempts: 1000, baseMs: 1000, maxMs: 300_000 };

export default defineConfig({
  destinations: {
    crm:
      brokers === undefined
        ? batchHandler(
            (messages) => {
              for (const { id, topic, tenantId } of messages)
                console.log(`published ${id}: ${topic} of ${tenantId}`);
            },
            { retry },
          )
        : kafka({ brokers, topic: 'crm.{topic}', retry }),
  },
  routes: [{ topic: '*', to: 'crm' }],
});
