// The relay of most benches: one handler that only counts, or takes BENCH_HANDLER_MS. A backlog is drained in
// batches as large as the peers'; all other options have their defaults.

import { defineConfig, handler } from '../../dist/index.js';
import { createProbe } from '../processes/probe.mjs';

const probe = createProbe();
const { BENCH_WHEN_DEAD: whenDead, BENCH_FAIRNESS: fairness, BENCH_HANDLER_MS } = process.env;
const handlerMs = Number(BENCH_HANDLER_MS ?? 0);
const settings = {
  relay: probe.readsPayload ? {} : { batchSize: 2000 },
  handler: { concurrency: 100, whenDead, fairness },
};
process.send?.({ type: 'settings', settings });

export default defineConfig({
  destinations: {
    sink: handler((message) => {
      // for a watched table, the payload contains the row
      const { payload } = probe.readsPayload ? message : {};
      probe.handle(message.id, payload?.record ?? payload);
      if (handlerMs > 0) return new Promise((resolve) => setTimeout(resolve, handlerMs));
    }, settings.handler),
  },
  routes: [{ topic: '*', to: 'sink' }],
  relay: settings.relay,
});
