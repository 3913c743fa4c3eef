// A relay in its own process, with three kinds of destination that send to the sink. It reports its events to the
// harness and ends by itself after SIGTERM. process.exit is not called, so a handle that was left open would keep it
// alive and be noticed.

import { batchHandler, createRelay, handler, webhook } from '../../../dist/index.js';
import { createSender } from './sending.mjs';

/** @typedef {import('../../../dist/index.js').ClaimedMessage} ClaimedMessage */

/** @type {{ name: string, databaseUrl: string, sinkUrl: string, relay: object, retry: object }} */
const options = JSON.parse(process.argv[2] ?? '{}');
const sender = createSender(options);

/** @param {string} destination @param {readonly ClaimedMessage[]} messages */
function send(destination, messages) {
  return sender.send(
    `/items/${destination}`,
    messages.map(({ id, claimNo, payloadText }) => ({ id, claimNo, body: payloadText })),
  );
}

const relay = createRelay({
  database: { url: options.databaseUrl, statementTimeoutMs: 5000, connectTimeoutMs: 2000 },
  destinations: {
    ledger: batchHandler((messages) => send('ledger', messages), {
      batchSize: 30,
      concurrency: 3,
      retry: options.retry,
    }),
    mail: handler(async (message) => (await send('mail', [message]))[0], {
      concurrency: 10,
      retry: options.retry,
    }),
    crm: webhook({
      url: `${options.sinkUrl}/webhook/crm`,
      allowedNetworks: ['127.0.0.0/8'],
      headers: { 'x-relay': options.name },
      concurrency: 10,
      retry: options.retry,
    }),
  },
  routes: [
    { topic: 'ledger.*', to: 'ledger' },
    { topic: 'mail.*', to: 'mail' },
    { topic: 'crm.*', to: 'crm' },
    ...['ledger', 'mail', 'crm'].map((to) => ({ topic: 'all.*', to })),
  ],
  relay: { ...options.relay, name: options.name },
  onEvent: (event) => {
    if (!['claimed', 'delivery_failed', 'woken'].includes(event.name) && process.connected)
      process.send?.({ event });
  },
});

let stopping = false;
process.on('SIGTERM', () => {
  stopping = true;
  void relay.stop().then(() => {
    sender.close();
    process.disconnect();
  });
});
process.on('disconnect', () => (stopping ? undefined : process.exit(1)));

await relay.start();
process.send?.({ started: relay.id });
