// Runs the worker of a peer, in a process as a user would run it: worker.mjs MODULE PURPOSE.

import { createProbe } from './probe.mjs';

const [module, purpose] = process.argv.slice(2);
const contender = await import(`../${module}`);
const probe = createProbe();
process.once('SIGTERM', () => process.exit(0));
await contender.work(process.env.DATABASE_URL, purpose, (id, payload) => probe.handle(id, payload));
process.send({ type: 'settings', settings: contender.settings[purpose] });
