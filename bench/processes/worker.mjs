// Starts the worker of a peer in its own process, then reports its settings: worker.mjs MODULE PURPOSE (drain, keyed or
// latency). `work` returns once the worker has started.

import { createProbe } from './probe.mjs';

const [module, purpose] = process.argv.slice(2);
const peer = await import(`../${module}`);
const probe = createProbe();
process.once('SIGTERM', () => process.exit(0));
await peer.work(process.env.DATABASE_URL, purpose, (id, payload) => probe.handle(id, payload));
process.send({ type: 'settings', settings: peer.settings[purpose] });
