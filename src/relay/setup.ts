// Relay setup: the checked configuration that a relay is made from, and the definitions that it stores in the
// database.

import { createHash } from 'node:crypto';

import type { ResolvedDatabaseOptions } from '../database/connection.js';
import type { CursorFilter, CursorStart } from '../database/cursors.js';
import type { ResolvedRetention } from './upkeep/retention.js';
import type { Destination, ResolvedSettings } from '../destinations/destination.js';
import { shownDestination } from '../destinations/shown-destination.js';
import type { ShownDestination } from '../destinations/shown-destination.js';
import type { Application } from '../core/application.js';
import type { ResolvedRetryPolicy } from '../core/retry-policy.js';
import type { SingleRoute } from '../core/route.js';
import type { Emit } from '../telemetry/events.js';
import type { ResolvedRelayOptions } from './options.js';
import { addedDestinations, featureDefinitions } from '../features/in-relay.js';
import type { FeatureRoute, FeatureSetup } from '../features/in-relay.js';

/** Includes the options of features. A relay does not use a feature whose options are missing. */
export type RelaySetup = FeatureSetup & {
  database: ResolvedDatabaseOptions;
  application: Application;
  destinations: Record<string, Destination>;
  routes: (SingleRoute & FeatureRoute)[];
  relay: ResolvedRelayOptions;
  retention: ResolvedRetention;
  onEvent?: Emit;
  /** One of several databases whose relays share the destinations. The relay of all shards opens and closes them. */
  shard?: { name: string; of: number };
};

/** What an application declares: its destinations and routes. */
export type Definitions = {
  destinations: ({
    name: string;
    kind: string;
    whenDead: string;
    fairness: string;
    ratePerSecond: number | null;
    hasBreaker: boolean;
    /** Two applications with the same fingerprint can share the destination; null: it cannot be shared. */
    fingerprint: string | null;
    /** Set for a destination that reads the log. */
    cursor: { from: CursorStart; filters: CursorFilter[]; partitions: number } | null;
    /** For display: two declarations that differ only in it are equal. */
    shown: ShownDestination;
  } & ResolvedRetryPolicy)[];
  routes: SingleRoute[];
};

const maxConnections = 20;

/**
 * Two connections, two more for each destination, and again two for each partition of one in stream mode, which reads
 * pages ahead; at most 20. With endpoints, 20.
 */
export function workConnections({
  destinations,
  endpoints,
}: Pick<RelaySetup, 'destinations' | 'endpoints'>): number {
  if (endpoints) return maxConnections;
  const all = Object.values(destinations);
  const streams = all.filter(({ settings }) => settings.mode === 'stream');
  const readers = streams.reduce((sum, { settings }) => sum + settings.partitions, 0);
  return Math.min(2 + 2 * (all.length + readers), maxConnections);
}

/** The same for relays with the same destinations, routes and definitions of features. */
export function fingerprintOf(setup: RelaySetup): string {
  const { destinations, routes } = definitionsOf(setup);
  const compared = destinations.map(({ shown: _shown, ...each }) => each);
  return digest({ destinations: compared, routes, ...featureDefinitions(setup) });
}

export function definitionsOf({
  destinations,
  routes,
}: Pick<RelaySetup, 'destinations' | 'routes'>): Definitions {
  return {
    destinations: [
      ...Object.entries(destinations),
      ...addedDestinations({ destinations, routes }).map(
        ({ name, kind, settings }) => [name, { kind, settings }] as const,
      ),
    ].map(([name, { kind, settings, ...rest }]) => {
      const cursor = cursorOf(name, settings, routes);
      const { definition } = rest as { definition?: object };
      return {
        name,
        kind,
        ...settings.retry,
        whenDead: settings.whenDead,
        fairness: settings.fairness,
        ratePerSecond: settings.rate?.perSecond ?? null,
        hasBreaker: settings.breaker !== null,
        fingerprint: destinationFingerprint(kind, settings, definition, cursor),
        cursor,
        shown: shownDestination(kind, settings, definition),
      };
    }),
    // a destination in stream mode reads the log and has no deliveries
    routes: routes.filter(({ to }) => destinations[to]?.settings.mode !== 'stream'),
  };
}

/** The cursor of a destination in stream mode; null for a destination with deliveries. */
function cursorOf(
  name: string,
  { mode, from, partitions }: ResolvedSettings,
  routes: readonly SingleRoute[],
): Definitions['destinations'][number]['cursor'] {
  if (mode !== 'stream') return null;
  const filters = routes
    .filter(({ to }) => to === name)
    .map(({ topic, namespace, tenantId }) => ({
      topic,
      ...(namespace !== undefined && { namespace }),
      ...(tenantId !== undefined && { tenantId }),
    }));
  return { from, filters, partitions };
}

/**
 * Equal in two applications that can share the destination; null if it runs a function of its application and so
 * cannot be shared. Settings of a relay, such as its concurrency, may differ.
 */
function destinationFingerprint(
  kind: string,
  { guard, retry, whenDead, fairness, rate, breaker, classify }: ResolvedSettings,
  definition: object | undefined,
  cursor: object | null,
): string | null {
  if (definition === undefined || guard !== undefined) return null;
  const hasBreaker = breaker !== null;
  return digest({
    kind,
    definition,
    retry,
    whenDead,
    fairness,
    rate,
    hasBreaker,
    classify,
    cursor,
  });
}

function digest(value: object): string {
  const text = JSON.stringify(value, (_name, part: unknown) => sorted(part));
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
}

/** Sorts the keys of an object, so their order does not change the digest. */
function sorted(part: unknown): unknown {
  if (typeof part !== 'object' || part === null || Array.isArray(part)) return part;
  return Object.fromEntries(
    Object.entries(part).toSorted(([one], [other]) => (one < other ? -1 : 1)),
  );
}
