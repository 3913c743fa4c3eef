// What a relay is made from: the configuration, checked; and what of it the database has to know.

import { createHash } from 'node:crypto';

import type { ResolvedDatabaseOptions } from '../database/connection.js';
import type { Definitions } from '../database/definitions.js';
import type { ResolvedRetention } from '../database/maintenance.js';
import type { Destination } from '../destinations/destination.js';
import type { ResolvedAuditOptions } from '../model/audit-options.js';
import type { Route } from '../model/route.js';
import type { ResolvedWatch } from '../model/watch.js';
import type { Emit } from '../telemetry/events.js';
import type { ResolvedAlertOptions } from './alert-options.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';
import type { ResolvedRelayOptions } from './options.js';
import { rolloutsOf, shadowName, shadowSettings } from './shadows.js';

export type RelaySetup = {
  database: ResolvedDatabaseOptions;
  destinations: Record<string, Destination>;
  routes: Route[];
  watches: ResolvedWatch[] | undefined;
  /** Settings of the endpoints in the database; without them, it does not serve any. */
  endpoints: ResolvedEndpointOptions | undefined;
  /** Without them, thresholds are left as they are, and this relay tells nobody. */
  alerts: ResolvedAlertOptions | undefined;
  relay: ResolvedRelayOptions;
  retention: ResolvedRetention;
  audit: ResolvedAuditOptions;
  onEvent?: Emit;
  /** One of several databases, whose relays share the destinations: whoever started them opens and closes those. */
  shard?: { name: string; of: number };
};

const maxConnections = 20;

/** For work: two for each destination, and two more for one that reads the log, whose pages are read ahead. */
export function workConnections({
  destinations,
  endpoints,
}: Pick<RelaySetup, 'destinations' | 'endpoints'>): number {
  if (endpoints) return maxConnections;
  const all = Object.values(destinations);
  const streams = all.filter(({ settings }) => settings.mode === 'stream');
  return Math.min(2 + 2 * (all.length + streams.length), maxConnections);
}

/** The same for relays with the same destinations, routes, endpoints and thresholds of alerts. */
export function fingerprintOf(setup: RelaySetup): string {
  return createHash('sha256')
    .update(
      JSON.stringify({
        ...definitionsOf(setup),
        endpoints: setup.endpoints,
        thresholds: setup.alerts?.thresholds,
      }),
    )
    .digest('hex')
    .slice(0, 12);
}

export function definitionsOf({ destinations, routes }: RelaySetup): Definitions {
  return {
    destinations: [
      ...Object.entries(destinations),
      ...rolloutsOf(routes).map(
        ({ name }) => [shadowName(name), { kind: 'shadow', settings: shadowSettings }] as const,
      ),
    ].map(([name, { kind, settings }]) => ({
      name,
      kind,
      ...settings.retry,
      whenDead: settings.whenDead,
      fairness: settings.fairness,
      ratePerSecond: settings.rate?.perSecond ?? null,
      hasBreaker: settings.breaker !== null,
    })),
    // what reads the log needs no deliveries
    routes: routes.filter(({ to }) => destinations[to]?.settings.mode !== 'stream'),
  };
}
