// A relay that serves the webhook endpoints of the database, and nothing else.

import { defineConfig } from 'waybill';

export default defineConfig({
  destinations: {},
  routes: [],
  endpoints: { timeoutMs: 15_000 },
});
