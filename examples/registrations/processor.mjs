// The site's processor: a request handler that cron calls. It delivers due messages in batches of 100, and answers {
// processed, succeeded, failed }, and also how many were released and whether it finished.

import { createDrainHandler } from 'waybill';

import config from './waybill.config.mjs';

export const POST = createDrainHandler({ config, token: process.env.DRAIN_TOKEN, maxMs: 25_000 });
