// What the functions of this folder deliver: a welcome to each new user, every message to a partner's webhook, and the
// log to an index.

import { batchHandler, defineConfig, handler, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    welcome: handler((message) => console.log(`welcome ${message.payload.email}`)),
    partner: webhook({
      url: process.env.PARTNER_URL,
      secrets: process.env.PARTNER_SECRET,
      // only for a partner on this machine
      allowedNetworks: ['127.0.0.0/8'],
    }),
    index: batchHandler((messages) => console.log(`indexed ${messages.length}`), {
      mode: 'stream',
    }),
  },
  routes: [{ topic: 'user.*', to: ['welcome', 'partner', 'index'] }],
});
