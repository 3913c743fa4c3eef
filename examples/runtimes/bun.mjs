// The drain handler as a function under Bun. Usage: bun bun.mjs

import { createDrainHandler } from 'waybill';

import config from './waybill.config.mjs';

const token = process.env.DRAIN_TOKEN;
const drain = createDrainHandler({ config, token, maxMs: 25_000 });

Bun.serve({ hostname: '127.0.0.1', port: Number(process.env.PORT), fetch: drain });
