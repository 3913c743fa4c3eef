// A subscription that reads the log in order; its named cursor keeps the position.
// Usage: DATABASE_URL=… node stream.mjs

import { subscribe } from 'waybill';

const subscription = await subscribe(
  { name: 'search-index', topics: ['user.*'], from: 'beginning', batchSize: 500 },
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
