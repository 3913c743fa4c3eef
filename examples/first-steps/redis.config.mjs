// Messages as entries of Redis streams: one stream for each topic, trimmed to about a million entries.

import { defineConfig } from 'waybill';
import { redis } from 'waybill/redis';

export default defineConfig({
  destinations: {
    streams: redis({
      url: process.env.REDIS_URL ?? 'redis://127.0.0.1:6379',
      stream: 'events:{topic}',
      maxLength: { count: 1_000_000 },
    }),
  },
  routes: [{ topic: '*', to: 'streams' }],
});
