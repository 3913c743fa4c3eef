// A reader of the log in its own process, which kills itself between the end of a batch and the move of the cursor. It
// writes what it received to a file first.

import { appendFileSync } from 'node:fs';

import { subscribe } from '../../../dist/index.js';

/** @type {{ name?: string, databaseUrl: string, file: string, batchesUntilDeath: number }} */
const options = JSON.parse(process.argv[2] ?? '{}');
let batches = 0;

const subscription = await subscribe(
  {
    name: options.name ?? 'crash',
    database: { url: options.databaseUrl },
    from: 'beginning',
    batchSize: 20,
    leaseMs: 1000,
    pollMs: 10,
  },
  (messages) => {
    appendFileSync(options.file, messages.map(({ id }) => `${id}\n`).join(''));
    batches += 1;
    if (batches === options.batchesUntilDeath) process.kill(process.pid, 'SIGKILL');
  },
);
process.once('SIGTERM', () => void subscription.stop());
