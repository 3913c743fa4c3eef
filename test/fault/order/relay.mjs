// A relay in its own process whose destinations all send to the sink: one for each policy, singly and in batches. It
// serves the destinations of its routes. It runs until it is killed, or stopped with SIGTERM. `root` is another
// checkout, whose Waybill it then runs.

/** @typedef {import('../../../dist/index.js').ClaimedMessage} ClaimedMessage */

/** @type {{ name: string, root?: string, database: object, sinkUrl: string, relay: object, retry: object, application: string, version: string, routes: { topic: string, to: string }[] }} */
const options = JSON.parse(process.argv[2] ?? '{}');
const root = options.root ?? new URL('../../../', import.meta.url).href;
/** @type {typeof import('../../../dist/index.js')} */
const { batchHandler, createRelay, handler } = await import(new URL('dist/index.js', root).href);
/** @type {typeof import('../crash/sending.mjs')} */
const { createSender } = await import(new URL('test/fault/crash/sending.mjs', root).href);
const sender = createSender(options);

/** @param {string} destination @param {readonly ClaimedMessage[]} messages */
function send(destination, messages) {
  return sender.send(
    `/${destination}`,
    messages.map(({ id, namespace, payload, sequence, previousSequence }) => ({
      id,
      label: /** @type {{ label: string }} */ (payload).label,
      namespace,
      sequence,
      previousSequence,
    })),
  );
}

/** @param {string} name @param {object} settings */
const singly = (name, settings) =>
  handler(async (message) => (await send(name, [message]))[0], {
    concurrency: 8,
    retry: options.retry,
    ...settings,
  });
/** @param {string} name @param {object} settings */
const together = (name, settings) =>
  batchHandler((messages) => send(name, messages), {
    batchSize: 8,
    concurrency: 4,
    retry: options.retry,
    ...settings,
  });

const destinations = {
  plain: singly('plain', { whenDead: 'continue' }),
  strict: together('strict', { whenDead: 'block' }),
  parking: together('parking', { whenDead: 'park' }),
  bulk: together('bulk', { whenDead: 'continue', fairness: 'tenant' }),
  billing: singly('billing', { whenDead: 'block' }),
};
const routed = new Set(options.routes.map(({ to }) => to));

const relay = createRelay({
  application: options.application,
  version: options.version,
  database: options.database,
  destinations: Object.fromEntries(
    Object.entries(destinations).filter(([name]) => routed.has(name)),
  ),
  routes: options.routes,
  relay: { ...options.relay, name: options.name },
  onEvent: (event) => {
    if (event.name === 'trouble') process.send?.({ trouble: `${event.what}: ${event.error}` });
  },
});

process.on('disconnect', () => process.exit(1));
process.on('SIGTERM', () => void relay.stop().then(() => process.exit(0)));
await relay.start().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
process.send?.({ started: relay.id });
