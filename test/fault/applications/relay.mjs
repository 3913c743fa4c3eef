// A relay process of one application and version: it logs each message in one line before it reports it as delivered. It
// runs until it is killed, or stopped with SIGTERM.

import { appendFileSync } from 'node:fs';

import { createRelay, handler } from '../../../dist/index.js';

/** @type {{ name: string, application: string, version: string, topics: string[], databaseUrl: string, logFile: string }} */
const { name, application, version, topics, databaseUrl, logFile } = JSON.parse(
  process.argv[2] ?? '{}',
);

const relay = createRelay({
  application,
  version,
  database: { url: databaseUrl },
  destinations: {
    [application]: handler(
      ({ id, key, sequence }) => appendFileSync(logFile, `${id} ${key} ${sequence} ${name}\n`),
      { concurrency: 8 },
    ),
  },
  routes: topics.map((topic) => ({ topic, to: application })),
  relay: { name, leaseMs: 1000, reapMs: 100, fallbackPollMs: 200, batchSize: 8 },
});

process.on('SIGTERM', () => void relay.stop().then(() => process.disconnect()));
process.on('disconnect', () => setTimeout(() => process.exit(0), 50));
await relay.start();
process.send?.({ started: relay.id });
