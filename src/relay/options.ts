// The relay's own options, with their defaults and limits.

import { ConfigurationError } from '../errors.js';
import { checkOptions, flag, integer, list, nullable, optional, text } from '../model/options.js';

export type RelayOptions = {
  /** Shown in `waybill status`. Default: host and process id. */
  name?: string;
  /** How long a claim is held before others may take it over. Default 30,000. */
  leaseMs?: number;
  /** Messages in one claim, at most. Default 1,000. */
  batchSize?: number;
  /** Payload bytes in one claim, at most. Default 8 MiB. */
  batchBytes?: number;
  /** Deliveries under way at once, over all destinations. One half is divided among them, the rest is for whoever comes first. Default 500. */
  concurrency?: number;
  /** While there is work: the pause between two looks at the queue. Default 5. */
  pollMs?: number;
  /** While there is none: look this often, in case the doorbell was missed. null: doorbell only. Default 500. */
  fallbackPollMs?: number | null;
  /** Use LISTEN. Default true. */
  listen?: boolean;
  /** How often expired leases are looked for. Default 1,000. */
  reapMs?: number;
  /** How long a stop may take. Default 8,000. */
  stopDeadlineMs?: number;
  /** Only these tenants. Default: all. */
  tenantIds?: readonly string[];
  /** Only this namespace. Default: all. */
  namespace?: string;
};

export type ResolvedRelayOptions = ReturnType<typeof resolveRelayOptions>;

export function resolveRelayOptions(options: RelayOptions = {}) {
  const checked = checkOptions('relay', options, {
    name: optional(text({ meaning: 'a name' })),
    leaseMs: integer({ min: 1000, max: 3_600_000, default: 30_000 }),
    batchSize: integer({ min: 1, max: 10_000, default: 1000 }),
    batchBytes: integer({ min: 1024, max: 256 * 1024 * 1024, default: 8 * 1024 * 1024 }),
    concurrency: integer({ min: 1, max: 100_000, default: 500 }),
    pollMs: integer({ min: 1, max: 60_000, default: 5 }),
    fallbackPollMs: nullable(integer({ min: 10, max: 3_600_000, default: 500 })),
    listen: flag(true),
    reapMs: integer({ min: 10, max: 60_000, default: 1000 }),
    stopDeadlineMs: integer({ min: 0, max: 3_600_000, default: 8000 }),
    tenantIds: optional(list(text({ meaning: 'a tenant id' }), { min: 1, max: 10_000 })),
    namespace: optional(text({ meaning: 'a namespace' })),
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
  return checked;
}
