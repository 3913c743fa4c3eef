// The relay of drain, keyed, xmin, latency and soak: one handler that does nothing but count. A backlog is drained in
// batches as large as the peers'; everything else runs on the defaults.

import { defineConfig, handler } from '../../dist/index.js';
import { createProbe } from '../processes/probe.mjs';

const probe = createProbe();
const settings = {
  relay: probe.readsPayload ? {} : { batchSize: 2000 },
  handler: { concurrency: 100, whenDead: process.env.BENCH_WHEN_DEAD },
};
process.send?.({ type: 'settings', settings });

export default defineConfig({
  destinations: {
    sink: handler((message) => {
      probe.handle(message.id, probe.readsPayload ? message.payload : undefined);
    }, settings.handler),
  },
  routes: [{ topic: '*', to: 'sink' }],
  relay: settings.relay,
});
