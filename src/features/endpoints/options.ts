// Options shared by all endpoints, with defaults that suit receivers of customers. A relay serves endpoints only if its
// configuration has these options.

import type { ResolvedSettings } from '../../destinations/destination.js';
import { refuseUnset, webhookKinds } from '../../destinations/webhook/options.js';
import type { WebhookOptions } from '../../destinations/webhook/webhook.js';
import { checkOptions, integer, nullable, refuse, whenGiven } from '../../core/options.js';

/** Webhook options that an endpoint does not set itself. */
type SharedOptions = Omit<
  WebhookOptions,
  | 'url'
  | 'secrets'
  | 'headers'
  | 'auth'
  | 'mode'
  | 'from'
  | 'partitions'
  | 'fairness'
  | 'concurrency'
>;

export type EndpointOptions = SharedOptions & {
  /** Deliveries in flight at once, per endpoint and relay. Default 5. */
  concurrency?: number;
  /** The most endpoints of one tenant; existing ones stay. Default 100. */
  maxPerTenant?: number;
  /** How long an endpoint fails without a success before the message `waybill.endpoint.failing` is enqueued; null: never. Default 86,400,000 (a day). */
  warnAfterMs?: number | null;
  /** How long an endpoint fails without a success before it is disabled; null: never. Default 432,000,000 (120 hours). */
  disableAfterMs?: number | null;
  /** The highest concurrency that an endpoint may have of its own. Default 20. */
  maxConcurrency?: number;
  /** The longest timeout that an endpoint may have of its own. Default 60,000. */
  maxTimeoutMs?: number;
};

export type EndpointsConfig = {
  /** Serve the webhook endpoints of the database, with these settings. Without it, this relay leaves them to others. */
  endpoints?: EndpointOptions;
};

declare module '../../telemetry/events.js' {
  interface FeatureEvents {
    endpoints_changed: { opened: number; changed: number; closed: number };
    endpoints_waiting: { problem: string };
  }
}

export type ResolvedEndpointOptions = {
  settings: ResolvedSettings;
  maxPerTenant: number;
  warnAfterMs: number | null;
  disableAfterMs: number | null;
  maxConcurrency: number;
  maxTimeoutMs: number;
  /** The options as they were given; each webhook checks and resolves them. */
  shared: SharedOptions;
};

const secondMs = 1000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;
const yearMs = 365 * 24 * hourMs;

/** As the Standard Webhooks specification proposes: three days, in ten tries. */
const schedule = [
  5 * secondMs,
  5 * minuteMs,
  30 * minuteMs,
  ...[2, 5, 10, 14, 20, 24].map((hours) => hours * hourMs),
];

export function resolveEndpointOptions(options: EndpointOptions = {}): ResolvedEndpointOptions {
  const {
    url: _url,
    secrets: _secrets,
    headers: _headers,
    auth: _auth,
    mode: _mode,
    from: _from,
    partitions: _partitions,
    fairness: _fairness,
    ...kinds
  } = webhookKinds;
  const {
    maxPerTenant,
    warnAfterMs,
    disableAfterMs,
    maxConcurrency,
    maxTimeoutMs,
    proxy: _proxy,
    tls,
    ...checked
  } = checkOptions('endpoints', options, {
    ...kinds,
    concurrency: integer({ min: 1, max: 1000, default: 5 }),
    maxPerTenant: integer({ min: 1, max: 100_000, default: 100 }),
    warnAfterMs: nullable(integer({ min: secondMs, max: yearMs, default: 24 * hourMs })),
    disableAfterMs: nullable(integer({ min: secondMs, max: yearMs, default: 120 * hourMs })),
    maxConcurrency: integer({ min: 1, max: 1000, default: 20 }),
    maxTimeoutMs: integer({ min: 1000, max: 3_600_000, default: 60_000 }),
    retry: (name: string, value: unknown) => kinds.retry(name, value ?? { delaysMs: schedule }),
  });
  refuseUnset('endpoints', options);
  if (tls?.servername !== undefined)
    refuse('endpoints.tls.servername', '…', 'leave it out: each endpoint has its own name');
  if (warnAfterMs !== null && disableAfterMs !== null && warnAfterMs >= disableAfterMs)
    refuse(
      'endpoints.warnAfterMs',
      warnAfterMs,
      `give less than endpoints.disableAfterMs, which is ${disableAfterMs}`,
    );
  const {
    concurrency: _concurrency,
    maxPerTenant: _most,
    warnAfterMs: _warn,
    disableAfterMs: _disable,
    maxConcurrency: _mostCalls,
    maxTimeoutMs: _longest,
    ...shared
  } = options;
  return {
    settings: { ...checked, mode: 'deliver', from: 'now', partitions: 1, fairness: 'none' },
    maxPerTenant,
    warnAfterMs,
    disableAfterMs,
    maxConcurrency,
    maxTimeoutMs,
    shared,
  };
}

export const endpointsKind = whenGiven(resolveEndpointOptions);
