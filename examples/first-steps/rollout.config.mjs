// A route that sends only the share that operators set: see docs/guides/rollouts.md.

import { defineConfig, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    automation: webhook({
      url: process.env.AUTOMATION_URL ?? 'https://example.com/hooks/registrations',
      body: 'envelope',
      retry: { delaysMs: [60_000, 300_000, 900_000, 3_600_000, 7_200_000] },
    }),
  },
  routes: [{ topic: 'user.*', to: 'automation', rollout: 'registrations' }],
});
