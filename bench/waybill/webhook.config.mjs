// The relay of the webhook bench.

import { defineConfig, webhook } from '../../dist/index.js';

export default defineConfig({
  destinations: {
    sink: webhook({
      url: process.env.BENCH_URL,
      concurrency: Number(process.env.BENCH_CONNECTIONS),
    }),
  },
  routes: [{ topic: '*', to: 'sink' }],
});
