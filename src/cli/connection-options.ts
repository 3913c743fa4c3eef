// The flags that every command shares, and how they combine: flags above the environment above the file.
// Secrets are never flags: the database's address comes from DATABASE_URL, DATABASE_URL_FILE or the file. Where the
// configuration has shards, a command is for one of them, which --shard names, or goes over all of them.

import type { Command } from 'commander';

import type { Config } from '../config.js';
import { Database, hasPostgresVariables, resolveDatabaseOptions } from '../database/connection.js';
import type { DatabaseOptions } from '../database/connection.js';
import { secretFromEnvironment } from '../database/secret-environment.js';
import { ConfigurationError } from '../errors.js';
import type { EndpointOptions } from '../relay/endpoint-options.js';
import { knownName, shardsKind } from '../shards.js';
import type { Shards } from '../shards.js';

export { secretFromEnvironment };

export type SharedFlags = { config?: string; schema?: string; json?: boolean; shard?: string };

/** `several`: the command runs for any number of shards at once. */
export function sharedOptions(command: Command, { several = false } = {}): Command {
  return command
    .option(
      several ? '--shard <name...>' : '--shard <name>',
      several
        ? 'only these shards of the configuration (default: all)'
        : 'which shard of the configuration',
    )
    .option(
      '-c, --config <file>',
      'the configuration file (default: waybill.config.ts in this directory)',
    )
    .option(
      '--schema <name>',
      'the schema that Waybill lives in (default: outbox, or WAYBILL_SCHEMA)',
    )
    .option('--json', 'answer in JSON');
}

/** The database as flags, environment and file say, in this order. */
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

/** The configuration, with the databases as flags and environment say. */
export async function configuredRelay(
  flags: Omit<SharedFlags, 'shard'> & { shard?: string | string[] },
): Promise<Config> {
  const config = await loadConfig(flags.config);
  const shards = shardsOf(config);
  if (shards !== undefined) return { ...config, shards: withSchema(shards, flags) };
  if (flags.shard !== undefined) throw noShards();
  return { ...config, database: databaseOptions(flags, config.database) };
}

/** Loaded when there is one to read: the relay comes with it, which most commands do without. */
async function hasConfig(): Promise<boolean> {
  const config = await import('../config.js');
  return config.hasConfig();
}

async function loadConfig(file?: string): Promise<Config> {
  const config = await import('../config.js');
  return config.loadConfig(file);
}

/** Addresses of one database beside those of the shards: whoever set them meant something by it. */
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
      `${single} is set, and the configuration has shards: unset it, or name the shard's own, such as WAYBILL_SHARD_${shards.names[0]?.toUpperCase().replaceAll('-', '_')}_URL`,
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

/** The databases that a command is for: one without a name, or shards of a map. */
export type Target = { shard?: string; shards?: Shards; options: DatabaseOptions };

export async function targets(flags: SharedFlags): Promise<Target[]> {
  const fromEnvironment = databaseOptions(flags);
  const needsFile =
    flags.config !== undefined ||
    flags.shard !== undefined ||
    (fromEnvironment.url === undefined && !hasPostgresVariables());
  const isNamed = flags.config !== undefined || flags.shard !== undefined;
  // where the environment names a database, only to see whether there are shards, which it must not hide
  const config =
    isNamed || (needsFile && (await hasConfig()))
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

/** Runs a command that needs a database but no destinations; a configuration file is used if it is named or there. */
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

/** A relay that serves only some. */
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

/** The configuration file, if it is named or there. */
export async function optionalConfig(
  flags: Pick<SharedFlags, 'config'>,
): Promise<Config | undefined> {
  return loadConfig(flags.config).catch((error: unknown) => {
    if (flags.config !== undefined) throw error;
    return undefined;
  });
}

/** The settings of endpoints as relays have them. */
export async function endpointOptions(flags: SharedFlags): Promise<EndpointOptions> {
  return (await optionalConfig(flags))?.endpoints ?? {};
}
