// The reader of the stream bench: a subscription to all topics that only counts. Batches are as large as those of
// the drain.

import { subscribe } from '../../dist/index.js';
import { createProbe } from '../processes/probe.mjs';

const probe = createProbe();
const subscription = await subscribe(
  { name: 'bench', from: 'beginning', batchSize: 2000 },
  (messages) => {
    for (const message of messages) probe.handle(message.id);
  },
);
process.once('SIGTERM', () => void subscription.stop().then(() => process.exit(0)));
