// Webhook destination, as Standard Webhooks describes it: one signed request per message, to a checked address, over
// its own connections. The receiver's answer decides the outcome. Redirects are not followed: if a receiver moves, the
// configuration must be changed.

import { definitionOf } from '../definition.js';
import type { SingleDestination } from '../destination.js';
import { checkWebhook } from './options.js';
import type { WebhookOptions } from './options.js';
import { webhookOf } from './sender.js';

export type { WebhookOptions } from './options.js';

/** Options that are not part of the definition: secrets, and the way to the receiver, which applications may choose. */
const hidden = ['secrets', 'auth', 'tls', 'proxy'];

export function webhook(options: WebhookOptions): SingleDestination {
  const checked = checkWebhook(options);
  return { ...webhookOf(checked), definition: definitionOf(options, checked, hidden) };
}
