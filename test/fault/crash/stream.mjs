// A reader of the log in its own process, which kills itself between the end of a batch and the move of the cursor. It
// writes what it received to a file first.

import { appendFileSync } from 'node:fs';

import { subscribe } from '../../../dist/index.js';

/** @type {{ name?: string, databaseUrl: string, file: string, batchesUntilDeath: number, partitions?: number, topics?: string[] }} */
const options = JSON.parse(process.argv[2] ?? '{}');
let batches = 0;

const subscription = await subscribe(
  {
    name: options.name ?? 'crash',
    database: { url: options.databaseUrl },
    ...(options.topics && { topics: options.topics }),
    from: 'beginning',
    partitions: options.partitions ?? 1,
    batchSize: 20,
    leaseMs: 1000,
    pollMs: 10,
  },
  (messages) => {
    const lines = messages.map(({ id, key, sequence }) =>
      key === null ? `${id}\n` : `${id} ${key} ${sequence}\n`,
    );
    appendFileSync(options.file, lines.join(''));
    batches += 1;
    if (batches === options.batchesUntilDeath) process.kill(process.pid, 'SIGKILL');
  },
);
process.once('SIGTERM', () => void subscription.stop());
