// Options of alerts: the thresholds, and the webhook that is called when an alert begins and when it ends. The default
// thresholds are in `alert_definitions` (sql/functions/alerts/alerts.sql).

import { allowedNetworks } from '../../destinations/webhook/targets.js';
import { dnsServers } from '../../destinations/webhook/dns-servers.js';
import { webhookHeaders } from '../../destinations/webhook/headers.js';
import { webhookSecrets } from '../../destinations/webhook/signature.js';
import { refuseTarget, webhookUrl } from '../../destinations/webhook/url.js';
import { webhook } from '../../destinations/webhook/webhook.js';
import type { SingleDestination } from '../../destinations/destination.js';
import { alertNames } from './names.js';
import type { AlertName, AlertThresholds } from './names.js';
import {
  anything,
  checkOptions,
  integer,
  nullable,
  number,
  optional,
  refuse,
  whenGiven,
} from '../../core/options.js';
import type { Outcome } from '../../core/outcome.js';

export type AlertOptions = {
  /** Thresholds that replace the defaults, by the name of the alert; `null` switches an alert off. All relays of a database share them. */
  thresholds?: AlertThresholds;
  /** Called when an alert begins and when it ends; `null`: no notifications. Default `null`. */
  webhook?: AlertWebhookOptions | null;
  /** How often a relay checks the alerts for the webhook. Default 15,000. */
  checkMs?: number;
  /** A notification is repeated after this long while its alert still fires. Default 14,400,000. */
  repeatMs?: number;
};

export type AlertWebhookOptions = {
  /** The address of the webhook. */
  url: string;
  /** Secrets that sign the requests: `whsec_…` or `whsk_…`. Default: no signature. */
  secrets?: string | readonly string[];
  /** Headers of every request. */
  headers?: Record<string, string>;
  /** A request that takes longer is aborted, and sent again later. Default 10,000. */
  timeoutMs?: number;
  /** Networks that the webhook may reach although they are not public. Default: none. */
  allowedNetworks?: readonly string[];
  /** Name servers that resolve the address. Default: those of the system. */
  dnsServers?: readonly string[];
};

export type AlertsConfig = {
  /** When alerts fire, and the webhook that is called. Without it, thresholds are left unchanged. */
  alerts?: AlertOptions;
};

declare module '../../telemetry/events.js' {
  interface FeatureEvents {
    alert_firing: { alert: string; value: number | null; threshold: number | null };
    alert_resolved: { alert: string };
    alert_untold: { alert: string; state: 'firing' | 'resolved'; outcome: Outcome };
  }
}

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

export const alertsKind = whenGiven(resolveAlertOptions);

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

/** Checks the options here as well as in the webhook, so that an error names the option that was given. */
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
  // an environment variable that is not set must not switch signatures off
  if ('secrets' in options && options.secrets === undefined)
    refuse(`${where}.secrets`, undefined, 'give a secret, or leave it out to sign nothing');
  refuseTarget(checked.url, checked.allowedNetworks, `${where}.url`);
  const { timeoutMs } = checked;
  const destination = webhook({ ...options, timeoutMs, body: 'envelope', concurrency: 1 });
  return { destination, timeoutMs };
}
