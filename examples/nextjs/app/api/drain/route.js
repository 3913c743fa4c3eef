import { createDrainHandler } from 'waybill';

import config from '../../../waybill.config.mjs';

export const dynamic = 'force-dynamic';
export const maxDuration = 60;

let drain;

export function POST(request) {
  // not at build time: the secrets are missing then
  drain ??= createDrainHandler({ config, token: process.env.CRON_SECRET, maxMs: 45_000 });
  return drain(request);
}

// for schedulers that can only send GET, such as Vercel's
export function GET(request) {
  return POST(new Request(request, { method: 'POST' }));
}
