// The drain handler as a function under Node.js, with Hono's server. Usage: node node.mjs

import { serve } from '@hono/node-server';
import { createDrainHandler } from 'waybill';

import config from './waybill.config.mjs';

const token = process.env.DRAIN_TOKEN;
const drain = createDrainHandler({ config, token, maxMs: 25_000 });

serve({ hostname: '127.0.0.1', port: Number(process.env.PORT), fetch: drain });
