// Order by key, with a destination that stops a key behind a dead message, and one whose tenants take turns.

import { defineConfig, handler } from 'waybill';

export default defineConfig({
  destinations: {
    ledger: handler(
      (message) => {
        console.log(
          `booking ${message.sequence} of ${message.key}, after ${message.previousSequence}`,
        );
      },
      { whenDead: 'block' },
    ),
    reports: handler((message) => console.log(`report for ${message.tenantId}`), {
      fairness: 'tenant',
    }),
  },
  routes: [
    { topic: 'payment.*', to: 'ledger' },
    { topic: 'report.*', to: 'reports' },
  ],
});
