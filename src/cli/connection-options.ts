// Flags that all commands share, and their precedence: flags, then the environment with .env, then the configuration
// file. Secrets are never flags: the address of the database comes from DATABASE_URL, DATABASE_URL_FILE or that file.
// With shards, a command runs for the shard that --shard names, or for all of them.

import type { Command } from 'commander';

import type { Config } from '../config.js';
import { Database, resolveDatabaseOptions } from '../database/connection.js';
import type { DatabaseOptions } from '../database/connection.js';
import { hasPostgresVariables } from '../database/direct-connection.js';
import { secretFromEnvironment } from '../database/secret-environment.js';
import { ConfigurationError } from '../core/errors.js';
import type { EndpointOptions } from '../features/endpoints/options.js';
import { knownName, shardsKind } from '../features/shards/shards.js';
import type { Shards } from '../features/shards/shards.js';
import { hasConfig, loadConfig } from './config-file.js';

export { secretFromEnvironment };

export type SharedFlags = { config?: string; schema?: string; json?: boolean; shard?: string };

/** `several`: the command can run for several shards at once. `json`: it can answer in JSON. */
export function sharedOptions(command: Command, { several = false, json = true } = {}): Command {
  const shared = command
    .option(
      several ? '--shard <name...>' : '--shard <name>',
      several
        ? 'only these shards of the configuration (default: all)'
        : 'which shard of the configuration',
    )
    .option(
      '-c, --config <file>',
      'the configuration file (default: waybill.config.ts, .mts, .js or .mjs in this directory)',
    )
    .option(
      '--schema <name>',
      'the schema that Waybill lives in (default: outbox, or WAYBILL_SCHEMA)',
    );
  return json ? shared.option('--json', 'answer in JSON') : shared;
}

/** The database options, from flags, the environment and the file, in this order. */
export function databaseOptions(
  flags: Pick<SharedFlags, 'schema'>,
  fromFile: DatabaseOptions = {},
): DatabaseOptions {
  const url = secretFromEnvironment('DATABASE_URL');
  const directUrl = secretFromEnvironment('DATABASE_DIRECT_URL');
  const replicaUrl = secretFromEnvironment('DATABASE_REPLICA_URL');
  const schema = flags.schema ?? process.env['WAYBILL_SCHEMA'];
  return {
    ...fromFile,
    ...(url && { url }),
    ...(directUrl && { directUrl }),
    ...(replicaUrl && { replicaUrl }),
    ...(schema !== undefined && { schema }),
  };
}

/** Loads the configuration, with the databases that flags and environment give. */
export async function configuredRelay(
  flags: Omit<SharedFlags, 'shard'> & { shard?: string | string[] },
): Promise<Config> {
  const config = await loadConfig(flags.config);
  const shards = shardsOf(config);
  if (shards !== undefined) return { ...config, shards: withSchema(shards, flags) };
  if (flags.shard !== undefined) throw noShards();
  return { ...config, database: databaseOptions(flags, config.database) };
}

/** Refuses the address of a single database beside shards, because it would have no effect. */
function shardsOf(config: Config | undefined): Shards | undefined {
  const shards = shardsKind('config.shards', config?.shards);
  if (shards === undefined) return undefined;
  const single = [
    'DATABASE_URL',
    'DATABASE_DIRECT_URL',
    'DATABASE_REPLICA_URL',
    'DATABASE_SERVER_URL',
  ]
    .flatMap((name) => [name, `${name}_FILE`])
    .find((name) => process.env[name]);
  if (single !== undefined)
    throw new ConfigurationError(
      `${single} is set (in the environment or in .env), and the configuration has shards: unset it (WAYBILL_ENV_FILE= reads no .env), or name the shard's own, such as WAYBILL_SHARD_${shards.names[0]?.toUpperCase().replaceAll('-', '_')}_URL`,
    );
  if (config?.database !== undefined)
    throw new ConfigurationError(
      'config.database is given, and config.shards too: leave one of them out',
    );
  return shards;
}

function withSchema(shards: Shards, flags: Pick<SharedFlags, 'schema'>): Shards {
  const schema = flags.schema ?? process.env['WAYBILL_SCHEMA'];
  if (schema === undefined) return shards;
  return {
    ...shards,
    databaseOf: (name) => ({ ...shards.databaseOf(name), schema }),
    serverDatabaseOf: (name) => ({ ...shards.serverDatabaseOf(name), schema }),
  };
}

function noShards(): ConfigurationError {
  return new ConfigurationError(
    '--shard is given, and the configuration has no shards: leave it out, or make them with defineShards',
  );
}

/** A database that a command runs for: a single one, or a shard of a map. */
export type Target = { shard?: string; shards?: Shards; options: DatabaseOptions };

export async function targets(flags: SharedFlags): Promise<Target[]> {
  const fromEnvironment = databaseOptions(flags);
  const needsFile =
    flags.config !== undefined ||
    flags.shard !== undefined ||
    (fromEnvironment.url === undefined && !hasPostgresVariables());
  const isNamed = flags.config !== undefined || flags.shard !== undefined;
  // if the environment names a database, the file is read only to find shards, which must not be ignored
  const config =
    isNamed || (needsFile && hasConfig())
      ? await loadConfig(flags.config)
      : await optionalConfig(flags);
  const shards = shardsOf(config);
  if (shards === undefined) {
    if (flags.shard !== undefined) throw noShards();
    return [{ options: databaseOptions(flags, needsFile ? config?.database : undefined) }];
  }
  const map = withSchema(shards, flags);
  const names =
    flags.shard === undefined ? shards.names : [knownName('--shard', flags.shard, shards.names)];
  return names.map((name) => ({ shard: name, shards: map, options: map.databaseOf(name) }));
}

/** Runs a command that needs a database but no destinations. Uses a configuration file if it is named or exists. */
export async function withDatabase<T>(
  flags: SharedFlags,
  work: (database: Database) => Promise<T>,
  limits: Pick<DatabaseOptions, 'statementTimeoutMs'> = {},
): Promise<T> {
  return inDatabase({ ...(await plainDatabaseOptions(flags)), ...limits }, work);
}

export async function inDatabase<T>(
  options: DatabaseOptions,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const database = new Database(resolveDatabaseOptions(options), {
    connections: 1,
    applicationName: 'waybill cli',
  });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

export async function plainDatabaseOptions(flags: SharedFlags): Promise<DatabaseOptions> {
  const [only, ...others] = await targets(flags);
  if (only === undefined || (only.shard !== undefined && flags.shard === undefined))
    throw new ConfigurationError(
      `the configuration has shards: name one with --shard, of ${[only, ...others].map((target) => target?.shard).join(', ')}`,
    );
  return only.options;
}

/** Limits a relay to the tenants and the namespace of the flags. */
export function withFilters<C extends { relay?: object }>(
  config: C,
  flags: { tenant?: string[]; namespace?: string },
): C {
  return {
    ...config,
    relay: {
      ...config.relay,
      ...(flags.tenant && { tenantIds: flags.tenant }),
      ...(flags.namespace && { namespace: flags.namespace }),
    },
  };
}

/** Loads the configuration file if it is named or exists. */
export async function optionalConfig(
  flags: Pick<SharedFlags, 'config'>,
): Promise<Config | undefined> {
  return loadConfig(flags.config).catch((error: unknown) => {
    if (flags.config !== undefined) throw error;
    return undefined;
  });
}

/** The endpoint settings of the configuration, as relays use them. */
export async function endpointOptions(flags: SharedFlags): Promise<EndpointOptions> {
  return (await optionalConfig(flags))?.endpoints ?? {};
}
