// The site's processor: a function of a request that cron calls. It delivers what is due, in batches of 100, and answers
// { processed, succeeded, failed }, and besides how many were given back and whether it finished.

import { createDrainHandler } from 'waybill';

import config from './waybill.config.mjs';

export const POST = createDrainHandler({ config, token: process.env.DRAIN_TOKEN, maxMs: 25_000 });
