// Options of webhooks, and their checks.

import { checkOptions, choice, integer, list, optional, refuse, text } from '../../core/options.js';
import { settingKinds } from '../destination.js';
import type { DestinationSettings } from '../destination.js';
import type { TlsOptions } from '../credentials.js';
import { webhookAuth } from './auth.js';
import type { WebhookAuth } from './auth.js';
import type { BodyShape } from './body.js';
import { dnsServers } from './dns-servers.js';
import { webhookHeaders } from './headers.js';
import { webhookProxy } from './proxy.js';
import { webhookSecrets } from './signature.js';
import { allowedNetworks } from './targets.js';
import { webhookTls } from './tls.js';
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
  /** An HTTP proxy for all connections, such as `http://user:password@proxy.example.com:3128`. It gets checked addresses. Default: none. */
  proxy?: string;
  /** A client certificate (`cert` and `key`, as PEM text), trusted authorities (`ca`) instead of those of the system, and the name that the receiver's certificate must have (`servername`). Default: none of them. */
  tls?: TlsOptions;
  /** How requests are authenticated: with a user and a password (`basic`), or with an access token (`oauth2`). Default: not at all. */
  auth?: WebhookAuth;
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
  proxy: webhookProxy,
  tls: webhookTls,
  auth: webhookAuth,
};

export type CheckedWebhook = ReturnType<typeof checkWebhook>;

export function checkWebhook(options: WebhookOptions) {
  const checked = checkOptions('webhook', options, webhookKinds);
  refuseUnset('webhook', options);
  refuseTwoLogins(checked.headers, checked.auth !== undefined);
  refuseContradiction(checked.successCodes, checked.terminalCodes);
  return checked;
}

/** Options that must not be undefined by mistake, each with the remedy. */
const unsetRemedies = {
  secrets: 'give a secret, or leave the option out to sign nothing',
  proxy: 'give the address of a proxy, or leave the option out to connect directly',
  tls: 'give TLS options, or leave the option out to have none',
  auth: 'give a login, or leave the option out to have none',
};

/** An environment variable that is not set must not switch off signatures, the proxy, TLS options or a login. */
export function refuseUnset(where: string, options: object): void {
  const given = new Map<string, unknown>(Object.entries(options));
  for (const [name, remedy] of Object.entries(unsetRemedies))
    if (given.has(name) && given.get(name) === undefined)
      refuse(`${where}.${name}`, undefined, remedy);
}

function refuseTwoLogins(headers: Readonly<Record<string, string>>, hasAuth: boolean): void {
  const header = Object.keys(headers).find((name) => name.toLowerCase() === 'authorization');
  if (hasAuth && header !== undefined)
    refuse(`webhook.headers.${header}`, '…', 'leave it out: auth sets this header');
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
