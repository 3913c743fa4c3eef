// Runs a relay that may meet a message that the driver cannot read. It prints the id of every message that it delivers,
// and the names of the events of its claims and leases. Run it with the database's address in DATABASE_URL and its
// schema in SCHEMA; SIGTERM stops it.

import { createRelay, handler } from '../../dist/index.js';

/** @param {string} word */
const say = (word) => void process.stdout.write(`${word}\n`);
const relay = createRelay({
  // half a gigabyte takes long on a busy machine
  database: {
    url: process.env.DATABASE_URL,
    schema: process.env.SCHEMA,
    statementTimeoutMs: 120_000,
  },
  destinations: {
    long: handler(({ id }) => say(id), { retry: { maxAttempts: 2, baseMs: 1, maxMs: 1 } }),
  },
  routes: [{ topic: 'long', to: 'long' }],
  relay: { leaseMs: 300_000 },
  onEvent: (event) => {
    if (event.name === 'trouble') say(`${event.what}: ${event.code}`);
    else if (event.name === 'leases_released') say(event.name);
  },
});
await relay.start();
process.on('SIGTERM', () => void relay.stop());
