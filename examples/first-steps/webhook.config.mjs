// Webhooks: signed, in several shapes, to public and to internal receivers.

import { defineConfig, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    // signed with two secrets, while the receiver changes from the old one to the new one
    partner: webhook({
      url: 'https://partner.example.com/events',
      secrets: [process.env.PARTNER_SECRET, process.env.PARTNER_SECRET_OLD],
      body: 'envelope',
      terminalCodes: [400, 422],
    }),
    // a CloudEvent for a service in the same network
    search: webhook({
      url: 'http://search.internal.example.com:8080/events',
      body: 'cloudevents',
      source: 'https://shop.example.com/orders',
      allowedNetworks: ['10.0.0.0/8'],
      method: 'PUT',
      successCodes: [200, 202, 409],
      keepResponses: 'all',
    }),
  },
  routes: [
    { topic: 'user.*', to: 'partner' },
    { topic: 'order.*', to: 'search' },
  ],
});
