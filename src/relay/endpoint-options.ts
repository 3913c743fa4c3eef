// What all endpoints of the database share: their settings, with defaults that suit receivers whom nobody here
// looks after. That they are given at all is what makes a relay serve endpoints.

import type { DestinationSettings, ResolvedSettings } from '../destinations/destination.js';
import { settingKinds } from '../destinations/destination.js';
import { checkOptions, integer } from '../model/options.js';

export type EndpointOptions = Pick<DestinationSettings, 'timeoutMs' | 'retry' | 'whenDead'> & {
  /** Deliveries under way at once, per endpoint and relay. Default 5. */
  concurrency?: number;
};

export type ResolvedEndpointOptions = { settings: ResolvedSettings };

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
  const { timeoutMs, retry, whenDead } = settingKinds;
  const checked = checkOptions('endpoints', options, {
    concurrency: integer({ min: 1, max: 1000, default: 5 }),
    timeoutMs,
    retry: (name: string, value: unknown) => retry(name, value ?? { delaysMs: schedule }),
    whenDead,
  });
  return { settings: { ...checked, mode: 'deliver', from: 'now', fairness: 'none' } };
}
