// Options shared by all endpoints, with defaults that suit receivers of customers. A relay serves endpoints only if its
// configuration has these options.

import type { ResolvedSettings } from '../../destinations/destination.js';
import { refuseUnset, webhookKinds } from '../../destinations/webhook/options.js';
import type { WebhookOptions } from '../../destinations/webhook/webhook.js';
import { checkOptions, integer, refuse, whenGiven } from '../../core/options.js';

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
  /** The options as they were given; each webhook checks and resolves them. */
  shared: SharedOptions;
};

const secondMs = 1000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;

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
    proxy: _proxy,
    tls,
    ...checked
  } = checkOptions('endpoints', options, {
    ...kinds,
    concurrency: integer({ min: 1, max: 1000, default: 5 }),
    maxPerTenant: integer({ min: 1, max: 100_000, default: 100 }),
    retry: (name: string, value: unknown) => kinds.retry(name, value ?? { delaysMs: schedule }),
  });
  refuseUnset('endpoints', options);
  if (tls?.servername !== undefined)
    refuse('endpoints.tls.servername', '…', 'leave it out: each endpoint has its own name');
  const { concurrency: _concurrency, maxPerTenant: _most, ...shared } = options;
  return {
    settings: { ...checked, mode: 'deliver', from: 'now', partitions: 1, fairness: 'none' },
    maxPerTenant,
    shared,
  };
}

export const endpointsKind = whenGiven(resolveEndpointOptions);
