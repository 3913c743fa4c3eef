// A relay process that may sleep. It prints the name of each event, and each message that it delivers.

import { createRelay, handler } from '../../../dist/index.js';

/** @type {{ databaseUrl: string, sleep: { afterMs: number, lookEveryMs: number } }} */
const { databaseUrl, sleep } = JSON.parse(process.argv[2] ?? '{}');

const relay = createRelay({
  database: { url: databaseUrl },
  destinations: { killed: handler(({ id }) => console.log(`delivered ${id}`)) },
  routes: [{ topic: 'killed', to: 'killed' }],
  relay: { sleep, leaseMs: 3000 },
  onEvent: ({ name }) => console.log(name),
});
process.on('SIGUSR2', () => relay.wake());
await relay.start();
