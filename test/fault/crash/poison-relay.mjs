// A relay with one destination whose handler ends the whole process when it gets a poison message, as a crash in native
// code or a memory limit would: nothing is settled and no error is reported.

import { createRelay, handler } from '../../../dist/index.js';

/** @type {{ databaseUrl: string, relay: object, retry: object }} */
const options = JSON.parse(process.argv[2] ?? '{}');

const relay = createRelay({
  database: { url: options.databaseUrl },
  destinations: {
    kitchen: handler(
      (message) => {
        if (message.topic === 'dish.poison') process.kill(process.pid, 'SIGKILL');
      },
      { concurrency: 100, retry: options.retry },
    ),
  },
  routes: [{ topic: 'dish.*', to: 'kitchen' }],
  relay: options.relay,
});

process.on('disconnect', () => process.exit(1));
await relay.start();
process.send?.({ started: relay.id });
