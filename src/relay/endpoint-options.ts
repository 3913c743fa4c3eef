// What all endpoints of the database share: their settings, with defaults that suit receivers whom nobody here
// looks after. That they are given at all is what makes a relay serve endpoints.

import type { ResolvedSettings } from '../destinations/destination.js';
import { webhookKinds } from '../destinations/webhook/webhook.js';
import type { WebhookOptions } from '../destinations/webhook/webhook.js';
import { checkOptions, integer } from '../model/options.js';

/** What an endpoint does not say for itself. */
type SharedOptions = Omit<
  WebhookOptions,
  'url' | 'secrets' | 'headers' | 'mode' | 'from' | 'fairness' | 'concurrency'
>;

export type EndpointOptions = SharedOptions & {
  /** Deliveries under way at once, per endpoint and relay. Default 5. */
  concurrency?: number;
};

export type ResolvedEndpointOptions = {
  settings: ResolvedSettings;
  /** As they were given: each webhook checks them again, and makes of them what it needs. */
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
    mode: _mode,
    from: _from,
    fairness: _fairness,
    ...kinds
  } = webhookKinds;
  const checked = checkOptions('endpoints', options, {
    ...kinds,
    concurrency: integer({ min: 1, max: 1000, default: 5 }),
    retry: (name: string, value: unknown) => kinds.retry(name, value ?? { delaysMs: schedule }),
  });
  const { concurrency: _concurrency, ...shared } = options;
  return {
    settings: { ...checked, mode: 'deliver', from: 'now', fairness: 'none' },
    shared,
  };
}
