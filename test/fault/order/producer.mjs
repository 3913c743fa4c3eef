// A producer process; its work is in producer.ts, from another checkout if `root` is set.

import { createJiti } from 'jiti';

/** @type {{ databaseUrl: string, root?: string }} */
const options = JSON.parse(process.argv[2] ?? '{}');
const root = options.root ?? new URL('../../../', import.meta.url).href;
/** @type {typeof import('./producer.js')} */
const { work } = await createJiti(root).import(new URL('test/fault/order/producer.ts', root).href);

/** @type {typeof import('../../../dist/producer/outbox.js')} */
const { createOutbox } = await import(new URL('dist/producer/outbox.js', root).href);

process.on('disconnect', () => process.exit(1));
await work(options, createOutbox());
