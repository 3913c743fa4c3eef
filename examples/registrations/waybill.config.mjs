// The relay of the registrations site: every event goes to one address of n8n, with five retries after 1, 5, 15, 60 and
// 120 minutes, and then to the dead letters. Only the events that the old system sent are under a rollout.

import { defineConfig, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    n8n: webhook({
      url: process.env.N8N_URL ?? 'http://127.0.0.1:5678/webhook/registrations',
      body: 'envelope',
      retry: { delaysMs: [60_000, 300_000, 900_000, 3_600_000, 7_200_000] },
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
