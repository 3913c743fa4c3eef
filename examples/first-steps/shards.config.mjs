// A relay for both databases. Usage: waybill start --config shards.config.mjs

import { defineConfig, handler } from 'waybill';
import { shards } from './shards.mjs';

export default defineConfig({
  shards,
  destinations: {
    invoices: handler((message) => {
      console.log(`invoice for ${message.tenantId}: message ${message.id}`);
    }),
  },
  routes: [{ topic: 'order.placed', to: 'invoices' }],
});
