import { defineConfig } from 'waybill';

import { events } from './lib/events.js';

export default defineConfig({
  destinations: {},
  routes: [],
  events,
  // for a receiver on your own machine; leave it out in production
  endpoints: { allowedNetworks: ['127.0.0.0/8', '::1/128'] },
  server: {
    portal: { name: 'Shop webhooks', embeddedBy: ['http://localhost:3000'] },
  },
});
