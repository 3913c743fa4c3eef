// Relay options, with their defaults and limits.

import { ConfigurationError } from '../core/errors.js';
import {
  checkOptions,
  flag,
  integer,
  list,
  nullable,
  optional,
  text,
  whenGiven,
} from '../core/options.js';
import { resolveSleepOptions } from './sleep/options.js';
import type { SleepOptions } from './sleep/options.js';

export type RelayOptions = {
  /** Shown in `waybill status`. Default: host and process id. */
  name?: string;
  /** How long a claim holds its deliveries before another relay may take them over. Default 30,000. */
  leaseMs?: number;
  /** Messages in one claim, at most. Default 1,000. */
  batchSize?: number;
  /** Bytes of payloads and headers in one claim, as text, at most. Default 8 MiB. */
  batchBytes?: number;
  /** Deliveries in flight at once, over all destinations. One half is reserved in equal parts, for each destination of the configuration and each tenant with endpoints. The other half is first come, first served. Default 500. */
  concurrency?: number;
  /** While there is work: the pause between two claims. Default: as long as a claim takes, between 2 and 5. */
  pollMs?: number;
  /** While a destination is idle: poll this often, in case a wake-up was missed. null: wake-ups only. Default: 2,500 while LISTEN works and the relay serves all tenants and namespaces, otherwise 500. */
  fallbackPollMs?: number | null;
  /** Use LISTEN. Default true. */
  listen?: boolean;
  /** How often expired leases are looked for. Default: when the next one expires, and every 9,000. */
  reapMs?: number;
  /** How long a stop may take. Default 8,000. */
  stopDeadlineMs?: number;
  /** How long `start()` waits for a database that is down or read-only, or for a lock; 0: no wait. Default 300,000. */
  startupWaitMs?: number;
  /** Only these tenants. Default: all. */
  tenantIds?: readonly string[];
  /** Only this namespace. Default: all. */
  namespace?: string;
  /** Closes all connections while there is nothing to do, so that a serverless database can sleep. Default: stays awake. */
  sleep?: SleepOptions;
};

export type ResolvedRelayOptions = ReturnType<typeof resolveRelayOptions>;

export function resolveRelayOptions(options: RelayOptions = {}) {
  const checked = checkOptions('relay', options, {
    name: optional(text({ meaning: 'a name' })),
    leaseMs: integer({ min: 1000, max: 3_600_000, default: 30_000 }),
    batchSize: integer({ min: 1, max: 10_000, default: 1000 }),
    batchBytes: integer({ min: 1024, max: 256 * 1024 * 1024, default: 8 * 1024 * 1024 }),
    concurrency: integer({ min: 1, max: 100_000, default: 500 }),
    pollMs: optional(integer({ min: 1, max: 60_000 })),
    fallbackPollMs: nullable(optional(integer({ min: 10, max: 3_600_000 }))),
    listen: flag(true),
    reapMs: optional(integer({ min: 10, max: 60_000 })),
    stopDeadlineMs: integer({ min: 0, max: 3_600_000, default: 8000 }),
    startupWaitMs: integer({ min: 0, max: 86_400_000, default: 300_000 }),
    tenantIds: optional(list(text({ meaning: 'a tenant id' }), { min: 1, max: 10_000 })),
    namespace: optional(text({ meaning: 'a namespace' })),
    sleep: whenGiven(resolveSleepOptions),
  });
  const third = Math.floor(checked.leaseMs / 3);
  for (const key of ['pollMs', 'fallbackPollMs', 'reapMs'] as const) {
    if ((checked[key] ?? 0) > third) {
      throw new ConfigurationError(
        `relay.${key} is ${checked[key]}: give at most a third of relay.leaseMs (${checked.leaseMs}), which is ${third}`,
      );
    }
  }
  if (!checked.listen && checked.fallbackPollMs === null) {
    throw new ConfigurationError(
      'relay.listen is false and relay.fallbackPollMs is null: nothing would ever wake the relay; switch one of them on',
    );
  }
  if (checked.sleep !== undefined && (checked.tenantIds ?? checked.namespace) !== undefined) {
    throw new ConfigurationError(
      'relay.sleep is given, and this relay serves only some tenants or one namespace: it cannot know when their next message is due; leave one of them out',
    );
  }
  return checked;
}
