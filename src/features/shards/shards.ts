// Shards: several databases, each with its own outbox, and the map from tenants to shards. Producers and relays share
// one definition: a producer opens its transaction in the database that `shardOf` names, and a relay serves each
// database. Addresses in the environment take precedence over those in the file, and are never shown with their
// password.

import { checkAddress, withoutPassword } from '../../database/address.js';
import { resolveDatabaseOptions } from '../../database/connection.js';
import type { DatabaseOptions } from '../../database/connection.js';
import { secretFromEnvironment } from '../../database/secret-environment.js';
import { ConfigurationError, shown } from '../../core/errors.js';
import { checkOptions, optional, refuse, text } from '../../core/options.js';
import { shardOf } from './shard-map.js';
import type { ShardMap } from './shard-map.js';

export type ShardOptions = Omit<DatabaseOptions, 'directUrl' | 'replicaUrl'> & {
  /** A direct address for LISTEN, retention and migrations, if `url` leads through a pooler. Default: `url`. */
  directUrl?: string;
  /**
   * A hot standby that answers requests that only read: the page, the metrics, `waybill tail` and the like. Default:
   * none.
   */
  replicaUrl?: string;
  /** The address of the database for the HTTP server of `waybill start`. Default: `url`. */
  serverUrl?: string;
};

export type ShardsOptions = {
  /** The databases by name. */
  shards: Readonly<Record<string, ShardOptions>>;
  /** Tenants that are assigned to a shard explicitly. All others are spread by a hash. Default: none. */
  tenants?: Readonly<Record<string, string>>;
  /** The shard of messages without a tenant. Default: they are refused. */
  default?: string;
};

export type Shards = ShardMap & {
  /** The connection options of a shard. */
  databaseOf(name: string): DatabaseOptions;
  /** The connection options of a shard for the HTTP server of `waybill start`. */
  serverDatabaseOf(name: string): DatabaseOptions;
};

type Addresses = Record<'url' | 'directUrl' | 'replicaUrl' | 'serverUrl', string | undefined>;
type Shard = { options: DatabaseOptions; addresses: Addresses };

/** As in a host name: shard names appear in addresses, in metric labels and in names of variables. */
const namePattern = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const form = 'give names and databases, such as { eu: { url }, us: { url } }';

export function defineShards(options: ShardsOptions): Shards {
  const given = checkOptions('defineShards', options, {
    shards: named(form),
    tenants: optional(named("give tenants and shards, such as { acme: 'eu' }")),
    default: optional(text({ meaning: 'the name of a shard' })),
  });
  const names = Object.keys(given.shards).toSorted();
  if (names.length === 0) refuse('defineShards.shards', given.shards, form);
  refuseSharedVariables(names);
  const shards = new Map(names.map((name) => [name, readShard(name, given.shards[name])]));
  refuseSameDatabase(shards);
  const tenants = new Map<string, string>();
  for (const [tenant, shard] of Object.entries(given.tenants ?? {})) {
    if (tenant === '') refuse('defineShards.tenants', tenant, 'give the id of a tenant');
    tenants.set(tenant, knownName(`defineShards.tenants[${shown(tenant)}]`, shard, names));
  }
  const fallback =
    given.default === undefined
      ? undefined
      : knownName('defineShards.default', given.default, names);
  const find = (name: string): Shard =>
    shards.get(knownName('the shard', name, names)) as unknown as Shard;
  return {
    names,
    shardOf: (tenant) => shardOf({ names, tenants, fallback }, tenant),
    databaseOf(name) {
      const { options: database, addresses } = find(name);
      return { ...database, url: addressOf(name, addresses), ...ownAddresses(addresses) };
    },
    serverDatabaseOf(name) {
      const { options: database, addresses } = find(name);
      const url = addresses.serverUrl ?? addressOf(name, addresses);
      return { ...database, url, ...ownAddresses(addresses) };
    },
  };
}

/** null: DATABASE_DIRECT_URL and DATABASE_REPLICA_URL belong to another database. */
function ownAddresses({ directUrl, replicaUrl }: Addresses) {
  return { directUrl: directUrl ?? null, replicaUrl: replicaUrl ?? null };
}

/** The variables of a shard, such as WAYBILL_SHARD_EU_URL; each may also end in _FILE. */
export function shardVariables(name: string): Record<keyof Addresses, string> {
  const prefix = `WAYBILL_SHARD_${name.toUpperCase().replaceAll('-', '_')}`;
  return {
    url: `${prefix}_URL`,
    directUrl: `${prefix}_DIRECT_URL`,
    replicaUrl: `${prefix}_REPLICA_URL`,
    serverUrl: `${prefix}_SERVER_URL`,
  };
}

/** Checks the option `shards` of a configuration. */
export function shardsKind(name: string, value: unknown): Shards | undefined {
  if (value === undefined) return undefined;
  const { names, databaseOf } = (value ?? {}) as Partial<Shards>;
  if (!Array.isArray(names) || typeof databaseOf !== 'function')
    throw new ConfigurationError(
      `${name} is not a result of defineShards: make it with defineShards`,
    );
  return value as Shards;
}

export function knownName(where: string, value: unknown, names: readonly string[]): string {
  return names.find((name) => name === value) ?? refuse(where, value, `give ${names.join(', ')}`);
}

function named(allowed: string) {
  return (where: string, value: unknown): Readonly<Record<string, unknown>> =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : refuse(where, typeof value, allowed);
}

function readShard(name: string, given: unknown): Shard {
  const where = `defineShards.shards.${name}`;
  if (!namePattern.test(name))
    throw new ConfigurationError(
      `defineShards.shards has the name ${shown(name)}: use small letters, digits and -, at most 63`,
    );
  // the value is not shown: it may be an address
  if (typeof given !== 'object' || given === null)
    throw new ConfigurationError(`${where} is no object: give { url }`);
  const { url, directUrl, replicaUrl, serverUrl, ...options } = given as ShardOptions;
  // the value is not shown: a URL object contains its password too
  const address = (at: string, value: unknown): string | undefined =>
    value === undefined || (typeof value === 'string' && value !== '')
      ? value
      : refuse(at, typeof value, 'give a postgresql:// address, as text');
  const written = checkOptions(
    where,
    { url, directUrl, replicaUrl, serverUrl },
    { url: address, directUrl: address, replicaUrl: address, serverUrl: address },
  );
  // the addresses are checked below, under the names of their own variables
  resolveDatabaseOptions({ ...options, url: '/', directUrl: null, replicaUrl: null }, where);
  const variables = shardVariables(name);
  const read = (key: keyof Addresses): string | undefined =>
    checkAddress(
      `${where}.${key} (${variables[key]})`,
      secretFromEnvironment(variables[key]) || written[key],
    );
  return {
    options,
    addresses: {
      url: read('url'),
      directUrl: read('directUrl'),
      replicaUrl: read('replicaUrl'),
      serverUrl: read('serverUrl'),
    },
  };
}

/** Fails here and not earlier, because a producer may use the map without addresses. */
function addressOf(name: string, { url }: Addresses): string {
  if (url !== undefined) return url;
  throw new ConfigurationError(
    `the shard ${name} has no address: set ${shardVariables(name).url}, or defineShards.shards.${name}.url`,
  );
}

/** Example of a clash: the direct address of eu, and the address of eu-direct. */
function refuseSharedVariables(names: readonly string[]): void {
  const owners = new Map<string, string>();
  for (const name of names) {
    for (const variable of Object.values(shardVariables(name))) {
      const owner = owners.get(variable);
      if (owner !== undefined)
        throw new ConfigurationError(
          `defineShards.shards has ${owner} and ${name}, which would share the variable ${variable}: rename one of them`,
        );
      owners.set(variable, name);
    }
  }
}

/** Two names for one database: its tenants would seem separate and are not. */
function refuseSameDatabase(shards: ReadonlyMap<string, Shard>): void {
  const owners = new Map<string, string>();
  for (const [name, { options, addresses }] of shards) {
    if (addresses.url === undefined) continue;
    const place = `${placeOf(addresses.url)} ${options.schema ?? 'outbox'}`;
    const owner = owners.get(place);
    if (owner !== undefined)
      throw new ConfigurationError(
        `defineShards.shards.${name}.url is ${withoutPassword(addresses.url)}, the database of ${owner} too: give each shard one of its own`,
      );
    owners.set(place, name);
  }
}

/** Host, port and database: another login does not make it another database. */
function placeOf(address: string): string {
  const complete = address.replace('@/', '@localhost/');
  if (!URL.canParse(complete)) return address;
  const { hostname, port, pathname, searchParams } = new URL(complete);
  return `${searchParams.get('host') ?? hostname}:${searchParams.get('port') ?? (port || '5432')}${pathname}`;
}
