// Options of webhooks, and their checks.

import { checkOptions, choice, integer, list, optional, refuse, text } from '../../core/options.js';
import { settingKinds } from '../destination.js';
import type { DestinationSettings } from '../destination.js';
import type { BodyShape } from './body.js';
import { dnsServers } from './dns-servers.js';
import { webhookHeaders } from './headers.js';
import { webhookSecrets } from './signature.js';
import { allowedNetworks } from './targets.js';
import { webhookUrl } from './url.js';

export type WebhookOptions = DestinationSettings & {
  /** The address of the webhook. */
  url: string;
  /** Secrets that sign the requests: `whsec_…` (HMAC-SHA256) or `whsk_…` (ed25519). During a rotation, several sign. Default: no signature. */
  secrets?: string | readonly string[];
  /** The payload as it is, in an `envelope` with `event`, `data` and `timestamp`, or as a CloudEvent in binary or structured form. Default `payload`. */
  body?: BodyShape;
  /** The `source` of CloudEvents. Default: `/waybill/` and the namespace. */
  source?: string;
  /** Headers of every request. */
  headers?: Record<string, string>;
  /** The method of the requests. Default `POST`. */
  method?: 'POST' | 'PUT' | 'PATCH';
  /** Statuses that mean delivered. Default: 200 to 299. */
  successCodes?: readonly number[];
  /** Statuses after which a message goes straight to the dead letters. Default: none. */
  terminalCodes?: readonly number[];
  /** The longest `Retry-After` of a 429 or 503; longer ones are shortened to this. Default 3,600,000. */
  maxRetryAfterMs?: number;
  /** Which responses are stored: their first 4 KiB. The status is always stored. Default `all`. */
  keepResponses?: 'all' | 'failures' | 'none';
  /** Networks that the webhook may reach although they are not public. Default: none. */
  allowedNetworks?: readonly string[];
  /** Name servers that resolve the address. Default: those of the system. */
  dnsServers?: readonly string[];
};

const status = integer({ min: 200, max: 599 });

/** The option kinds of webhooks, for destinations that build webhooks from other descriptions, such as endpoints. */
export const webhookKinds = {
  ...settingKinds,
  url: webhookUrl,
  secrets: webhookSecrets,
  body: choice<BodyShape>('payload', 'envelope', 'cloudevents', 'cloudevents-structured'),
  source: optional(text({ pattern: /^[\u0021-\u007e]+$/, meaning: 'a URI reference' })),
  headers: webhookHeaders,
  method: choice('POST', 'PUT', 'PATCH'),
  successCodes: optional(list(status, { min: 1, max: 400 })),
  terminalCodes: optional(list(status, { min: 0, max: 400 })),
  maxRetryAfterMs: integer({ min: 1000, max: 2_592_000_000, default: 3_600_000 }),
  keepResponses: choice('all', 'failures', 'none'),
  allowedNetworks,
  dnsServers,
};

export type CheckedWebhook = ReturnType<typeof checkWebhook>;

export function checkWebhook(options: WebhookOptions) {
  const checked = checkOptions('webhook', options, webhookKinds);
  refuseLostSecret(options);
  refuseContradiction(checked.successCodes, checked.terminalCodes);
  return checked;
}

/** An environment variable that is not set must not switch signatures off. */
function refuseLostSecret(options: WebhookOptions): void {
  if ('secrets' in options && options.secrets === undefined)
    refuse('webhook.secrets', undefined, 'give a secret, or leave the option out to sign nothing');
}

function refuseContradiction(
  successCodes: readonly number[] | undefined,
  terminalCodes: readonly number[] | undefined,
): void {
  const both = terminalCodes?.find((code) =>
    successCodes === undefined ? code < 300 : successCodes.includes(code),
  );
  if (both !== undefined)
    refuse('webhook.terminalCodes', both, 'leave out what means delivered already');
}
