// The reader of the stream bench: a subscription to all topics that only counts, or takes a time for each message.
// Batches are as large as those of the drain. With partitions, it reports when it has its share of them.

import { setTimeout as delay } from 'node:timers/promises';

import { subscribe } from '../../dist/index.js';
import { createProbe } from '../processes/probe.mjs';

const { BENCH_CURSOR = 'bench', BENCH_FROM, BENCH_BATCH } = process.env;
const [partitions, share, msPerMessage] = ['PARTITIONS', 'SHARE', 'MS_PER_MESSAGE'].map((name) =>
  Number(process.env[`BENCH_${name}`] ?? 0),
);
const probe = createProbe();
const subscription = await subscribe(
  {
    name: BENCH_CURSOR,
    from: BENCH_FROM ?? 'beginning',
    batchSize: Number(BENCH_BATCH ?? 2000),
    partitions: partitions || 1,
  },
  async (messages) => {
    if (msPerMessage > 0) await delay(messages.length * msPerMessage);
    for (const message of messages) probe.handle(message.id);
  },
);
process.once('SIGTERM', () => void subscription.stop().then(() => process.exit(0)));

if (share > 0) {
  while (subscription.partitions.length !== share) await delay(20);
  process.send({ type: 'shared' });
}
