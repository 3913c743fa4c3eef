// A subscription in a process that lives for seconds: it reads what is there, and ends. The next one goes on.
// Usage: DATABASE_URL=… node stream-drain.mjs

import { drainSubscription } from 'waybill';

const report = await drainSubscription(
  { name: 'search-index', topics: ['user.*'], from: 'beginning', batchSize: 500 },
  async (messages, { signal }) => {
    await index(
      messages.map((message) => message.payload),
      signal,
    );
  },
  { maxMs: 25_000 },
);
console.log(report);

async function index(documents) {
  for (const { email } of documents) await Promise.resolve(console.log(`indexed ${email}`));
}
