// A producer as a process of its own; what it does is in producer.ts.

import { createJiti } from 'jiti';

/** @type {typeof import('./producer.js')} */
const { work } = await createJiti(import.meta.url).import('./producer.ts');

process.on('disconnect', () => process.exit(1));
await work(JSON.parse(process.argv[2] ?? '{}'));
