// The relay of the kafka bench.

import { kafka } from '../../dist/destinations/kafka/index.js';
import { defineConfig } from '../../dist/index.js';

export default defineConfig({
  destinations: {
    sink: kafka({
      brokers: [process.env.BENCH_BROKER],
      topic: process.env.BENCH_TOPIC,
      batchSize: Number(process.env.BENCH_BATCH),
      concurrency: Number(process.env.BENCH_CALLS),
      ...(process.env.BENCH_MODE === 'stream' && {
        mode: 'stream',
        from: 'beginning',
        partitions: Number(process.env.BENCH_PARTITIONS),
      }),
    }),
  },
  routes: [{ topic: '*', to: 'sink' }],
});
