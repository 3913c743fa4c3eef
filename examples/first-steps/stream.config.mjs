// A relay whose destination reads the log in order instead of having deliveries.

import { batchHandler, defineConfig } from 'waybill';

async function store(rows) {
  for (const { email } of rows) await Promise.resolve(console.log(`stored ${email}`));
}

export default defineConfig({
  destinations: {
    warehouse: batchHandler(
      async (messages) => {
        await store(messages.map((message) => message.payload));
      },
      { mode: 'stream', from: 'beginning', batchSize: 1000 },
    ),
  },
  routes: [{ topic: 'user.*', to: 'warehouse' }],
});
