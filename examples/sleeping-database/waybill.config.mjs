// A relay that closes its connections while it has nothing to do, so that a serverless database can sleep.

import { defineConfig, handler } from 'waybill';

export default defineConfig({
  destinations: {
    welcome: handler((message) => console.log(`welcome ${message.payload.email}`)),
  },
  routes: [{ topic: 'user.registered', to: 'welcome' }],
  relay: {
    sleep: { afterMs: 30_000, lookEveryMs: 3_600_000 },
  },
});
