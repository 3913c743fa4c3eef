// All kinds of destinations, with their options.

import { batchHandler, defineConfig, delivered, handler, reject, retry, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    // one message at a time; if the function throws, the message is retried
    billing: handler(
      async (message, { signal }) => {
        const { amount } = message.payload;
        if (!(amount > 0)) return reject({ code: 'amount_invalid' });
        const answer = await charge(message.id, amount, signal);
        if (answer.busy) return retry({ code: 'rail_busy', afterMs: 5000 });
        return delivered(answer.receipt);
      },
      { concurrency: 5, timeoutMs: 10_000, retry: { maxAttempts: 3, baseMs: 500, maxMs: 60_000 } },
    ),
    // up to 200 messages in one call; one outcome for each, in the same order
    search: batchHandler(
      async (messages) => {
        await index(messages.map((message) => message.payload));
        return messages.map(() => delivered());
      },
      { batchSize: 200 },
    ),
    // a POST with the payload as its body
    crm: webhook({
      url: 'https://crm.example.com/events',
      headers: { authorization: `Bearer ${process.env.CRM_TOKEN ?? ''}` },
      retry: { delaysMs: [60_000, 300_000, 900_000, 3_600_000, 7_200_000] },
    }),
  },
  routes: [
    { topic: 'payment.*', to: 'billing', namespace: 'shop' },
    { topic: '*', to: ['search', 'crm'] },
    { topic: 'user.registered', to: 'crm', tenantId: 'acme' },
  ],
  retention: { messagesDays: 3, attemptsDays: 90 },
});

// stand-ins for the functions of an application
function charge(idempotencyKey, amount, signal) {
  signal.throwIfAborted();
  return Promise.resolve({ busy: false, receipt: `${idempotencyKey}/${amount}` });
}

function index(documents) {
  return Promise.resolve(documents.length);
}
