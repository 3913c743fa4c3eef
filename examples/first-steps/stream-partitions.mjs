// A subscription whose log is divided into four partitions: start it up to four times, and the processes share them.
// Usage: DATABASE_URL=… node stream-partitions.mjs

import { subscribe } from 'waybill';

const subscription = await subscribe(
  { name: 'search-index', topics: ['user.*'], partitions: 4, batchSize: 500 },
  async (messages, { signal }) => {
    await index(
      messages.map((message) => message.payload),
      signal,
    );
  },
);

async function index(documents) {
  for (const { email } of documents) await Promise.resolve(console.log(`indexed ${email}`));
}

process.once('SIGTERM', () => void subscription.stop());
