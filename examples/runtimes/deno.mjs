// The drain handler as a function under Deno.
// Usage: deno run --allow-env --allow-net --allow-read --allow-sys deno.mjs

import { createDrainHandler } from 'waybill';

import config from './waybill.config.mjs';

const token = Deno.env.get('DRAIN_TOKEN');
const drain = createDrainHandler({ config, token, maxMs: 25_000 });

Deno.serve({ hostname: '127.0.0.1', port: Number(Deno.env.get('PORT')) }, (request) =>
  drain(request),
);
