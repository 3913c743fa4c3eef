// Order by key: one destination blocks a key behind a dead letter, another shares its claims among tenants.

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
