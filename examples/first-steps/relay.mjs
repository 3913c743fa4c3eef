// A relay inside your own application, without the command line.
// Usage: DATABASE_URL=… node relay.mjs

import { createRelay, migrateUp } from 'waybill';

import config from './waybill.config.mjs';

await migrateUp();
const relay = createRelay({
  ...config,
  onEvent: (event) => {
    if (event.name === 'delivery_failed') console.error(event.messageId, event.outcome);
  },
});
await relay.start();
process.once('SIGTERM', () => {
  void relay.stop();
});
