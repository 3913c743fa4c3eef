// The destination functions without a client library, as applications import them: refused options are reported with
// the name of the destination. They delay the error until the configuration names the destination (until-named.ts).

import { batchHandler as makeBatchHandler, handler as makeHandler } from './handler.js';
import { untilNamed } from './until-named.js';
import { webhook as makeWebhook } from './webhook/webhook.js';

export const batchHandler: typeof makeBatchHandler = untilNamed(makeBatchHandler);
export const handler: typeof makeHandler = untilNamed(makeHandler);
export const webhook: typeof makeWebhook = untilNamed(makeWebhook);
