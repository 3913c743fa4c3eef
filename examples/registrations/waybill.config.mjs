// The relay of the registrations site: every event goes to one address of n8n. A failed event is tried again after 1, 5,
// 15 and 60 minutes; the fifth failure makes it a dead letter. Only the events that the old system sent are under a
// rollout.

import { defineConfig, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    n8n: webhook({
      url: process.env.N8N_URL ?? 'http://127.0.0.1:5678/webhook/registrations',
      body: 'envelope',
      // add 7_200_000 for a sixth try after two more hours
      retry: { delaysMs: [60_000, 300_000, 900_000, 3_600_000] },
      // n8n runs on this machine
      allowedNetworks: ['127.0.0.0/8', '::1/128'],
    }),
  },
  routes: [
    { topic: 'user.registered', to: 'n8n', rollout: 'registrations' },
    { topic: 'user.updated', to: 'n8n' },
    { topic: 'user.deleted', to: 'n8n' },
    { topic: 'pair.*', to: 'n8n' },
    { topic: 'subscription.*', to: 'n8n' },
    { topic: 'payment.*', to: 'n8n' },
  ],
  relay: { batchSize: 100 },
});
