// A producer as a process of its own; what it does is in producer.ts, of another checkout if `root` says so.

import { createJiti } from 'jiti';

/** @type {{ databaseUrl: string, root?: string }} */
const options = JSON.parse(process.argv[2] ?? '{}');
const root = options.root ?? new URL('../../../', import.meta.url).href;
/** @type {typeof import('./producer.js')} */
const { work } = await createJiti(root).import(new URL('test/fault/order/producer.ts', root).href);

/** @type {typeof import('../../../dist/outbox.js')} */
const { createOutbox } = await import(new URL('dist/outbox.js', root).href);

process.on('disconnect', () => process.exit(1));
await work(options, createOutbox());
