// A function that lives for seconds, in its own process: it drains a subscription once, reports what it did, and may
// kill itself between the end of a batch and the move of the cursor. It writes what it received to a file first.

import { appendFileSync } from 'node:fs';

import { drainSubscription } from '../../../dist/index.js';

/** @type {{ databaseUrl: string, file: string, batchesUntilDeath: number }} */
const options = JSON.parse(process.argv[2] ?? '{}');
let batches = 0;

const report = await drainSubscription(
  {
    name: 'drained',
    topics: ['drained'],
    database: { url: options.databaseUrl },
    from: 'beginning',
    batchSize: 20,
    leaseMs: 2000,
  },
  (messages) => {
    const lines = messages.map(({ id, key, sequence }) => `${id} ${key} ${sequence}\n`);
    appendFileSync(options.file, lines.join(''));
    batches += 1;
    if (batches === options.batchesUntilDeath) process.kill(process.pid, 'SIGKILL');
  },
);
process.send?.(report);
process.disconnect();
