// The way to receivers: through a proxy with a fixed address, with a client certificate, and with a login.

import { defineConfig, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    partner: webhook({
      url: 'https://partner.example.com/events',
      proxy: process.env.EGRESS_PROXY,
    }),
    bank: webhook({
      url: 'https://bank.example.com/events',
      tls: { cert: process.env.BANK_CERT, key: process.env.BANK_KEY },
    }),
    erp: webhook({
      url: 'https://erp.example.com/events',
      auth: { type: 'basic', user: 'waybill', password: process.env.ERP_PASSWORD },
    }),
    crm: webhook({
      url: 'https://crm.example.com/events',
      auth: {
        type: 'oauth2',
        tokenUrl: 'https://login.example.com/oauth/token',
        clientId: 'waybill',
        clientSecret: process.env.CRM_CLIENT_SECRET,
        scope: 'events:write',
      },
    }),
  },
  routes: [
    { topic: 'user.*', to: ['partner', 'erp', 'crm'] },
    { topic: 'payment.*', to: 'bank' },
  ],
  endpoints: {
    proxy: process.env.EGRESS_PROXY,
    tls: { cert: process.env.EGRESS_CERT, key: process.env.EGRESS_KEY },
  },
});
