// A reader process: a subscription to the messages of one seed that sends each batch to the sink. It reports when it
// holds the cursor, and runs until it is killed.

import { setTimeout as delay } from 'node:timers/promises';

import { subscribe } from '../../../dist/index.js';

/** @type {{ name: string, namespace: string, databaseUrl: string, sinkUrl: string, batchSize: number, retry: object }} */
const { name, namespace, databaseUrl, sinkUrl, batchSize, retry } = JSON.parse(
  process.argv[2] ?? '{}',
);

const subscription = await subscribe(
  {
    name: namespace,
    namespace,
    database: { url: databaseUrl },
    from: 'beginning',
    batchSize,
    leaseMs: 1000,
    pollMs: 20,
    retry,
  },
  async (messages) => {
    const items = messages.map((message) => ({
      id: message.id,
      label: /** @type {{ label: string }} */ (message.payload).label,
      namespace: message.namespace,
      sequence: message.sequence,
      previousSequence: null,
    }));
    const headers = { 'x-relay': name };
    const answer = await fetch(`${sinkUrl}/log`, {
      method: 'POST',
      headers,
      body: JSON.stringify(items),
    });
    await answer.text();
  },
);

process.on('disconnect', () => process.exit(1));
while (!subscription.reading) await delay(10);
process.send?.({ reading: true });
