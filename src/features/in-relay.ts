// What features add to a relay: options of the configuration and of its routes, destinations, definitions, retention,
// and parts of a run. What they add to the surfaces for operators is in all.ts.

import type { SingleRoute } from '../core/route.js';
import type { Database } from '../database/connection.js';
import type { Destination, ResolvedSettings } from '../destinations/destination.js';
import type { PartContext, RelayPart } from '../relay/part.js';
import type { RelaySetup } from '../relay/setup.js';
import { alertsKind } from './alerts/options.js';
import type { AlertsConfig } from './alerts/options.js';
import { alertsPart } from './alerts/relay-part.js';
import { resolveAuditOptions } from './audit/options.js';
import type { AuditConfig, AuditOptions } from './audit/options.js';
import { auditPart } from './audit/relay-part.js';
import { endpointsKind } from './endpoints/options.js';
import type { EndpointsConfig } from './endpoints/options.js';
import { endpointRetention } from './endpoints/retention.js';
import { discardRetention, jobRetention } from './dead-letters/retention.js';
import { reportsPart } from './reports/relay-part.js';
import { reportRetention } from './reports/retention.js';
import { rolloutRoutes } from './rollouts/route-option.js';
import type { RolloutRoute } from './rollouts/route-option.js';
import { comparisonRetention, refuseShadowless, shadows } from './rollouts/shadows.js';
import { withTables } from './watches/database.js';
import { watchesPart } from './watches/relay-part.js';
import { watchesKind } from './watches/watch.js';
import type { WatchesConfig } from './watches/watch.js';

/** The options of features in a configuration. */
export type FeatureConfig = WatchesConfig & EndpointsConfig & AlertsConfig & AuditConfig;

/** The checks of these options. The results are in the setup of a relay, under the same names. */
export const featureKinds = {
  watches: watchesKind,
  endpoints: endpointsKind,
  alerts: alertsKind,
  audit: (_name: string, given: unknown) => resolveAuditOptions(given as AuditOptions | undefined),
};

export type FeatureSetup = {
  [Name in keyof typeof featureKinds]: ReturnType<(typeof featureKinds)[Name]>;
};

/** The options of features in a route, and their checks. */
export type FeatureRoute = RolloutRoute;
export const featureRoutes = rolloutRoutes;

/** Refuses destinations and routes that a feature cannot work with. */
export function refuseForFeatures(
  destinations: Record<string, Destination>,
  routes: readonly SingleRoute[],
): void {
  refuseShadowless(destinations, routes);
}

/** A destination that a feature adds to those of the configuration. */
export type AddedDestination = {
  name: string;
  kind: string;
  settings: ResolvedSettings;
  make: (database: Database) => Destination;
};

export function addedDestinations(
  setup: Pick<RelaySetup, 'destinations' | 'routes'>,
): AddedDestination[] {
  return shadows(setup);
}

/** What `waybill apply` declares beside destinations and routes, as `apply_definitions` takes it. */
export async function declaredBeside(
  { watches }: RelaySetup,
  database: Database,
): Promise<Record<string, unknown>> {
  return watches === undefined ? {} : { watches: await withTables(database, watches) };
}

/** What must be equal in all relays of an application, beside destinations and routes. */
export function featureDefinitions({ endpoints, alerts }: FeatureSetup): object {
  return { endpoints, thresholds: alerts?.thresholds };
}

/** Rows that retention removes after some days: the SQL function that removes a batch of them. */
export type FeatureRetention = { what: string; prune: string; days: number };
export const featureRetention: readonly FeatureRetention[] = [
  comparisonRetention,
  jobRetention,
  discardRetention,
  endpointRetention,
  reportRetention,
];

/** The parts that this configuration asks for. */
export function relayParts(context: PartContext): RelayPart[] {
  const parts = [
    watchesPart(context),
    auditPart(context),
    alertsPart(context),
    reportsPart(context),
  ];
  return parts.filter((part) => part !== undefined);
}
