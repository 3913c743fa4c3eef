// Configuration: a file (waybill.config.ts), overridden by the environment, overridden by flags. Everything is
// checked here before anything starts. src/cli/config-file.ts loads the file.

import { resolveDatabaseOptions } from './database/connection.js';
import type { DatabaseOptions, ResolvedDatabaseOptions } from './database/connection.js';
import { resolveRetention } from './relay/upkeep/retention.js';
import type { Retention } from './relay/upkeep/retention.js';
import type { Destination } from './destinations/destination.js';
import { ConfigurationError, shown } from './core/errors.js';
import { eventsKind } from './producer/events/event-definitions.js';
import type { DefinedEvents } from './producer/events/event-definitions.js';
import { applicationKind, versionKind } from './core/application.js';
import { anything, checkOptions, optional } from './core/options.js';
import { checkRoutes } from './core/route.js';
import type { Route as CoreRoute } from './core/route.js';
import { resolveServerOptions } from './server/options.js';
import type { ServerOptions } from './server/options.js';
import { resolveRelayOptions } from './relay/options.js';
import type { RelayOptions, ResolvedRelayOptions } from './relay/options.js';
import { Relay } from './relay/relay.js';
import type { RelaySetup } from './relay/setup.js';
import { ShardedRelay } from './features/shards/relay.js';
import type { EmitOfShard } from './features/shards/relay.js';
import { featureKinds, featureRoutes, refuseForFeatures } from './features/in-relay.js';
import type { FeatureConfig, FeatureRoute } from './features/in-relay.js';
import { knownName, shardsKind } from './features/shards/shards.js';
import type { Shards } from './features/shards/shards.js';
import type { Emit } from './telemetry/events.js';

/** A route, with the options of features. */
export type Route = CoreRoute & FeatureRoute;

export type Config = FeatureConfig & {
  /** The application that owns these destinations, routes and watches. Applications that share a schema need different names. Default `default`. */
  application?: string;
  /** The version of the application, for display. Default: none. */
  version?: string;
  database?: DatabaseOptions;
  /** The result of `defineShards`, instead of `database`: several databases, each with its own relay. */
  shards?: Shards;
  /** Where messages go, by name. */
  destinations: Record<string, Destination>;
  /** Which topics go to which destination. */
  routes: Route[];
  /** The result of `defineEvents`, for `waybill events` and the portal: a relay does not check payloads. */
  events?: DefinedEvents;
  relay?: RelayOptions;
  retention?: Retention;
  /** The HTTP port of `waybill start`: health, the API, the page. null: none. */
  server?: ServerOptions | null;
};

/** Gives the editor the type of a configuration file. */
export function defineConfig(config: Config): Config {
  return config;
}

export function resolveConfig(config: Config): RelaySetup {
  if (config.shards !== undefined)
    throw new ConfigurationError(
      'config.shards is given, and this is made for one database: use createShardedRelay, or config.database',
    );
  return setupOf(config, config.database);
}

/** A setup for each shard, or for the named ones. */
export function resolveShards(
  config: Config,
  only?: readonly string[],
): { name: string; setup: RelaySetup }[] {
  const shards = shardsKind('config.shards', config.shards);
  if (shards === undefined)
    throw new ConfigurationError(
      'config.shards is missing: give the result of defineShards, or use createRelay',
    );
  refuseBeside(config);
  const names = only?.map((name) => knownName('the shard', name, shards.names)) ?? shards.names;
  return [...new Set(names)].map((name) => ({
    name,
    setup: {
      ...setupOf(forShard(config, name), shards.databaseOf(name)),
      shard: { name, of: shards.names.length },
    },
  }));
}

/** The destinations of a configuration, after all of it was checked. */
export function destinationsOf(config: Config): Record<string, Destination> {
  const [setup] = config.shards
    ? resolveShards(config).map((shard) => shard.setup)
    : [resolveConfig(config)];
  return setup?.destinations ?? {};
}

/** Refuses options that all shards would share although each needs its own. */
function refuseBeside({ database, server, audit }: Config): void {
  const problem =
    database !== undefined
      ? 'config.database is given, and config.shards too: leave one of them out'
      : server?.databaseUrl !== undefined
        ? 'config.server.databaseUrl is given, and config.shards too: give each shard its serverUrl'
        : undefined;
  if (problem) throw new ConfigurationError(problem);
  for (const place of ['file', 'webhook'] as const) {
    if (audit?.heads?.[place]?.includes('{shard}') === false)
      throw new ConfigurationError(
        `config.audit.heads.${place} has no {shard} in it, and config.shards is given: write it where the name of the shard belongs, because each shard has its own chain`,
      );
  }
}

/** Each shard has its own chain of seals, so its own places for the heads. */
export function forShard(config: Config, shard: string): Config {
  const { audit } = config;
  if (audit?.heads === undefined) return config;
  const { file, webhook } = audit.heads;
  const named = (text: string) => text.replaceAll('{shard}', shard);
  const heads = {
    ...audit.heads,
    ...(file !== undefined && { file: named(file) }),
    ...(webhook !== undefined && { webhook: named(webhook) }),
  };
  return { ...config, audit: { ...audit, heads } };
}

function setupOf(config: Config, databaseOptions: DatabaseOptions | undefined): RelaySetup {
  const {
    application,
    version = null,
    database: _database,
    shards: _shards,
    events: _events,
    destinations: givenDestinations,
    routes: givenRoutes,
    relay: givenRelay,
    retention,
    server,
    ...features
  } = checkOptions('config', config, {
    application: applicationKind,
    version: optional(versionKind),
    database: anything<unknown>(),
    shards: anything<unknown>(),
    events: eventsKind,
    destinations: anything<unknown>(),
    routes: anything<unknown>(),
    relay: anything<RelayOptions | undefined>(),
    retention: anything<Retention | undefined>(),
    server: anything<ServerOptions | null | undefined>(),
    ...featureKinds,
  });
  const destinations = checkDestinations(givenDestinations);
  const relay = resolveRelayOptions(givenRelay);
  refuseFilteredStreams(destinations, relay);
  const database = resolveDatabaseOptions(databaseOptions);
  if (relay.sleep) refuseSleep(destinations, database, config.shards !== undefined);
  if (server) resolveServerOptions(server);
  refuseIdleSettings(destinations);
  const routes = checkRoutes(givenRoutes, new Set(Object.keys(destinations)), featureRoutes);
  refuseForFeatures(destinations, routes);
  return {
    database,
    application: { name: application, version },
    destinations,
    routes,
    relay,
    retention: resolveRetention(retention),
    ...features,
  };
}

/** Refuses what needs a relay that is always awake. */
function refuseSleep(
  destinations: Record<string, Destination>,
  { replicaUrl }: ResolvedDatabaseOptions,
  hasShards: boolean,
): void {
  const [stream] = Object.entries(destinations).find(
    ([, { settings }]) => settings.mode === 'stream',
  ) ?? [undefined];
  const problem = hasShards
    ? 'config.shards too: start a process with config.database for each shard that may sleep'
    : replicaUrl !== undefined
      ? 'database.replicaUrl too: the replica is compared with the primary all the time; set it to null'
      : stream !== undefined &&
        `config.destinations.${stream}.mode is "stream": a log has no due times; use mode "deliver"`;
  if (problem) throw new ConfigurationError(`config.relay.sleep is given, and ${problem}`);
}

/** A cursor moves past everything it reads, so it cannot leave messages for another relay. */
function refuseFilteredStreams(
  destinations: Record<string, Destination>,
  { tenantIds, namespace }: ResolvedRelayOptions,
): void {
  const stream = Object.entries(destinations).find(
    ([, { settings }]) => settings.mode === 'stream',
  );
  if (stream === undefined || (tenantIds === undefined && namespace === undefined)) return;
  throw new ConfigurationError(
    `config.destinations.${stream[0]}.mode is "stream", and this relay serves only some tenants or one namespace: put namespace or tenantId into its routes instead`,
  );
}

/** Refuses settings that would be ignored, because their author relies on them. */
function refuseIdleSettings(destinations: Record<string, Destination>): void {
  for (const [name, { settings }] of Object.entries(destinations)) {
    const { mode, from, partitions, breaker, whenDead, fairness } = settings;
    const problem =
      mode === 'deliver'
        ? from === 'beginning'
          ? 'has from "beginning", and its mode is "deliver": from is for mode "stream"; leave it out'
          : partitions > 1 &&
            `has partitions ${partitions}, and its mode is "deliver": partitions are for mode "stream"; leave them out, all relays share deliveries`
        : breaker
          ? 'has a breaker, and its mode is "stream": leave the breaker out; a failing message is retried by itself, with backoff'
          : whenDead === 'park'
            ? 'has whenDead "park", and its mode is "stream": use "continue", or "block" to wait behind a message that fails'
            : fairness === 'tenant' &&
              'has fairness "tenant", and its mode is "stream": a log is read in its own order; leave it out';
    if (problem) throw new ConfigurationError(`config.destinations.${name} ${problem}`);
  }
}

/** A relay from code, without a configuration file. */
export function createRelay(config: Config & { onEvent?: Emit }): Relay {
  const { onEvent, ...rest } = config;
  return new Relay({ ...resolveConfig(rest), ...(onEvent && { onEvent }) });
}

/** A relay for each shard of the configuration, or for the shards in `only`, in one process. */
export function createShardedRelay(
  config: Config & { onEvent?: EmitOfShard; only?: readonly string[] },
): ShardedRelay {
  const { onEvent, only, ...rest } = config;
  return new ShardedRelay(resolveShards(rest, only), onEvent);
}

const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/;

function checkDestinations(destinations: unknown): Record<string, Destination> {
  if (typeof destinations !== 'object' || destinations === null) {
    throw new ConfigurationError(
      `config.destinations is ${shown(destinations)}: give an object such as { crm: webhook({ url }) }`,
    );
  }
  for (const [name, destination] of Object.entries(destinations) as [
    string,
    Partial<Destination> | null,
  ][]) {
    if (!namePattern.test(name)) {
      throw new ConfigurationError(
        `config.destinations has the name ${shown(name)}: use letters, digits, _ - and ., at most 63`,
      );
    }
    if (settingsOf(name, destination) === undefined) {
      throw new ConfigurationError(
        `config.destinations.${name} is ${shown(destination)}: make it with handler(), webhook() or the like`,
      );
    }
  }
  return destinations as Record<string, Destination>;
}

/** Reading `settings` throws if options were refused; adds the destination's name to that error. */
function settingsOf(name: string, destination: Partial<Destination> | null): unknown {
  try {
    return destination?.settings;
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    throw new ConfigurationError(`config.destinations.${name}: ${error.message}`, { cause: error });
  }
}
