// Messages in a FIFO queue of SQS: those of one key arrive in order. The AWS SDK finds the credentials.

import { defineConfig } from 'waybill';
import { sqs } from 'waybill/sqs';

export default defineConfig({
  destinations: {
    billing: sqs({
      queueUrl: 'https://sqs.eu-west-1.amazonaws.com/123456789012/billing.fifo',
    }),
  },
  routes: [{ topic: 'order.*', to: 'billing' }],
});
