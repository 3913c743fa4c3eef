// When alerts fire, and who is told: the thresholds, and the webhook that is called when one begins and when it ends.

import { allowedNetworks } from '../destinations/webhook/targets.js';
import { dnsServers } from '../destinations/webhook/connector.js';
import { webhookHeaders } from '../destinations/webhook/headers.js';
import { webhookSecrets } from '../destinations/webhook/signature.js';
import { refuseTarget, webhookUrl } from '../destinations/webhook/url.js';
import { webhook } from '../destinations/webhook/webhook.js';
import type { SingleDestination } from '../destinations/destination.js';
import { alertNames } from '../model/alerts.js';
import type { AlertName, AlertThresholds } from '../model/alerts.js';
import {
  anything,
  checkOptions,
  integer,
  nullable,
  number,
  optional,
  refuse,
} from '../model/options.js';

export type AlertOptions = {
  /** Instead of the defaults, by the name of the alert; `null` switches one off. All relays of a database share them. */
  thresholds?: AlertThresholds;
  /** Called when an alert begins and when it ends; null: nobody is told. Default `null`. */
  webhook?: AlertWebhookOptions | null;
  /** How often the alerts are looked at, for the webhook. Default 15,000. */
  checkMs?: number;
  /** An alert that still fires is told again after this long. Default 14,400,000. */
  repeatMs?: number;
};

export type AlertWebhookOptions = {
  /** Where to send to. */
  url: string;
  /** Sign with these: `whsec_…` or `whsk_…`. Default: no signature. */
  secrets?: string | readonly string[];
  /** Sent with every request. */
  headers?: Record<string, string>;
  /** After this long a request is given up, and sent again later. Default 10,000. */
  timeoutMs?: number;
  /** Networks that are not public and may be reached all the same. Default: none. */
  allowedNetworks?: readonly string[];
  /** Name servers to ask. Default: as the system resolves names. */
  dnsServers?: readonly string[];
};

export type ResolvedAlertOptions = {
  readonly thresholds: AlertThresholds;
  readonly webhook: { readonly destination: SingleDestination; readonly timeoutMs: number } | null;
  readonly checkMs: number;
  readonly repeatMs: number;
};

export function resolveAlertOptions(options: AlertOptions): ResolvedAlertOptions {
  const checked = checkOptions('alerts', options, {
    thresholds: thresholdsKind,
    webhook: nullable(anything<AlertWebhookOptions | undefined>()),
    checkMs: integer({ min: 100, max: 3_600_000, default: 15_000 }),
    repeatMs: integer({ min: 60_000, max: 2_592_000_000, default: 14_400_000 }),
  });
  return { ...checked, webhook: checked.webhook ? resolveAlertWebhook(checked.webhook) : null };
}

const threshold = optional(nullable(number({ min: 0, max: 1e12 })));
const thresholdKinds = Object.fromEntries(alertNames.map((name) => [name, threshold])) as Record<
  AlertName,
  typeof threshold
>;

function thresholdsKind(name: string, value: unknown): AlertThresholds {
  const checked = checkOptions(name, value as object | undefined, thresholdKinds);
  const given = Object.entries(checked).filter(([, each]) => each !== undefined);
  return Object.fromEntries(given);
}

/** Checked here as well, so that a refusal names the option that was given. */
export function resolveAlertWebhook(options: AlertWebhookOptions) {
  const where = 'alerts.webhook';
  const checked = checkOptions(where, options, {
    url: webhookUrl,
    secrets: webhookSecrets,
    headers: webhookHeaders,
    timeoutMs: integer({ min: 100, max: 60_000, default: 10_000 }),
    allowedNetworks,
    dnsServers,
  });
  // a variable of the environment that is not set must not switch the signatures off
  if ('secrets' in options && options.secrets === undefined)
    refuse(`${where}.secrets`, undefined, 'give a secret, or leave it out to sign nothing');
  refuseTarget(checked.url, checked.allowedNetworks, `${where}.url`);
  const { timeoutMs } = checked;
  const destination = webhook({ ...options, timeoutMs, body: 'envelope', concurrency: 1 });
  return { destination, timeoutMs };
}
