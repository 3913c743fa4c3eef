// The relay of the webhook bench.

import { defineConfig, webhook } from '../../dist/index.js';

export default defineConfig({
  destinations: {
    sink: webhook({
      url: process.env.BENCH_URL,
      allowedNetworks: ['127.0.0.0/8'],
      secrets: `whsec_${process.env.BENCH_SECRET}`,
      concurrency: Number(process.env.BENCH_CONNECTIONS),
    }),
  },
  routes: [{ topic: '*', to: 'sink' }],
});
