// Relay events: one catalogue, used by logs, counters and the live line. Events of a feature are declared in its folder,
// which adds them to FeatureEvents.

import { errorCode, errorText } from '../core/errors.js';
import type { Conclusion, Failure, Outcome } from '../core/outcome.js';

export type CoreEvent =
  | { name: 'relay_started'; relay: string; destinations: string[] }
  | { name: 'relay_stopped'; relay: string }
  | { name: 'relay_asleep'; relay: string; forMs: number }
  | { name: 'relay_refused'; relay: string; error: string }
  | { name: 'database_unavailable'; error: string; againMs: number }
  | { name: 'database_available'; waitedMs: number }
  | { name: 'shard_unavailable'; error: string; againMs: number }
  | { name: 'other_configuration'; application: string; relays: string[] }
  | { name: 'claimed'; destination: string; count: number; ms: number }
  | {
      name: 'settled';
      destination: string;
      counts: Record<Conclusion['kind'], number>;
      /** How many became dead letters, because they were rejected or had no try left. */
      died: number;
      /** How long each sent delivery took. */
      latenciesMs: readonly number[];
      ms: number;
    }
  | {
      name: 'delivery_failed';
      destination: string;
      messageId: string;
      tries: number;
      outcome: Outcome;
    }
  | {
      name: 'lease_lost';
      destination: string;
      leaseId: string;
      /** Messages whose outcome was not recorded, or was reported too late. */
      messageIds: string[];
      noticedBy: 'settle' | 'extension';
    }
  | { name: 'leases_released'; count: number }
  | { name: 'zombies_requeued'; count: number }
  | { name: 'misdated_released'; count: number }
  | { name: 'woken'; by: 'notification' | 'poll' }
  | { name: 'listen_unavailable'; reason: string }
  | { name: 'trouble'; what: string; code?: string; error: string }
  | { name: 'destination_hung'; destination: string; overdue: number }
  | { name: 'destination_paused'; destination: string; failure: Failure }
  | {
      name: 'breaker_opened';
      destination: string;
      because: 'failures' | 'failure_rate' | 'probe';
      failures: number;
      forMs: number;
    }
  | { name: 'breaker_closed'; destination: string; openForMs: number }
  | { name: 'stream_taken'; cursor: string; partition: number }
  | { name: 'stream_lost'; cursor: string; partition: number }
  | { name: 'stream_read'; cursor: string; partition: number; count: number; ms: number }
  | {
      name: 'stream_failed';
      cursor: string;
      partition: number;
      messageId: string;
      tries: number;
      outcome: Outcome;
    }
  | {
      name: 'stream_parked';
      cursor: string;
      partition: number;
      messageId: string;
      tries: number;
      code: string;
    }
  | { name: 'partitions_made'; count: number }
  | { name: 'partition_alarm'; daysAhead: number }
  | { name: 'pruned'; what: string; rows: number; ms: number; thinned?: number }
  | { name: 'retention_floor'; floors: string[] }
  | { name: 'maintenance_left' }
  | { name: 'replica_used'; lagMs: number }
  | { name: 'replica_unused'; reason: string }
  | { name: 'serving'; page: string; login: string; url: string };

/** Events of features by name, with their fields: each feature adds its own. */
export interface FeatureEvents {}

export type RelayEvent =
  | CoreEvent
  | { [Name in keyof FeatureEvents]: { name: Name } & FeatureEvents[Name] }[keyof FeatureEvents];

export type Emit = (event: RelayEvent) => void;

/** An event for an error after which the relay tries again. */
export function troubleOf(what: string, error: unknown): CoreEvent {
  const code = errorCode(error);
  return { name: 'trouble', what, ...(code !== undefined && { code }), error: errorText(error) };
}

/** Events that an operator should see. */
const warnings = new Set<CoreEvent['name']>([
  'relay_refused',
  'database_unavailable',
  'shard_unavailable',
  'other_configuration',
  'lease_lost',
  'listen_unavailable',
  'trouble',
  'misdated_released',
  'destination_hung',
  'destination_paused',
  'breaker_opened',
  'stream_lost',
  'stream_parked',
  'partition_alarm',
  'retention_floor',
  'replica_unused',
]);

const routine = new Set<CoreEvent['name']>([
  'claimed',
  'settled',
  'woken',
  'delivery_failed',
  'stream_read',
  'stream_failed',
]);

/** The level at which an event is logged; features say theirs themselves. */
export function coreLevel(name: CoreEvent['name']): 'debug' | 'info' | 'warn' {
  if (warnings.has(name)) return 'warn';
  return routine.has(name) ? 'debug' : 'info';
}
