// Messages in a FIFO queue of SQS: those of one key arrive in order. Credentials come from where the AWS SDK looks
// for them.

import { defineConfig, sqs } from 'waybill';

export default defineConfig({
  destinations: {
    billing: sqs({
      queueUrl: 'https://sqs.eu-west-1.amazonaws.com/123456789012/billing.fifo',
    }),
  },
  routes: [{ topic: 'order.*', to: 'billing' }],
});
