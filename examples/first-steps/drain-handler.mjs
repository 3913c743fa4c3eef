import { createDrainHandler } from 'waybill';

import config from './waybill.config.mjs';

export const POST = createDrainHandler({ config, token: process.env.DRAIN_TOKEN, maxMs: 25_000 });
