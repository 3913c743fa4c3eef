// The flags that every command shares, and how they combine: flags above the environment above the file.
// Secrets are never flags: the database's address comes from DATABASE_URL, DATABASE_URL_FILE or the file.

import { readFileSync } from 'node:fs';

import type { Command } from 'commander';

import { ConfigurationError, errorText, shown } from '../errors.js';

import type { Config } from '../config.js';
import { Database, hasPostgresVariables, resolveDatabaseOptions } from '../database/connection.js';
import type { DatabaseOptions } from '../database/connection.js';
import type { EndpointOptions } from '../relay/endpoint-options.js';

export type SharedFlags = { config?: string; schema?: string; json?: boolean };

export function sharedOptions(command: Command): Command {
  return command
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
  flags: SharedFlags,
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

/** From NAME, or from the file that NAME_FILE names. */
export function secretFromEnvironment(name: string, what = 'the address'): string | undefined {
  const file = process.env[`${name}_FILE`];
  if (file === undefined) return process.env[name];
  let secret: string;
  try {
    secret = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw new ConfigurationError(
      `${name}_FILE is ${shown(file)}, which cannot be read: ${errorText(error)}`,
    );
  }
  if (secret === '')
    throw new ConfigurationError(
      `${name}_FILE is ${shown(file)}, which is empty: write ${what} into it`,
    );
  return secret;
}

/** Loaded when there is one to read: the relay comes with it, which most commands do without. */
async function loadConfig(file?: string): Promise<Config> {
  const config = await import('../config.js');
  return config.loadConfig(file);
}

export async function configuredRelay(flags: SharedFlags): Promise<Config> {
  const config = await loadConfig(flags.config);
  return { ...config, database: databaseOptions(flags, config.database) };
}

/** Runs a command that needs a database but no destinations; a configuration file is used if it is named or there. */
export async function withDatabase<T>(
  flags: SharedFlags,
  work: (database: Database) => Promise<T>,
  limits: Pick<DatabaseOptions, 'statementTimeoutMs'> = {},
): Promise<T> {
  const options = { ...(await plainDatabaseOptions(flags)), ...limits };
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
  const fromEnvironment = databaseOptions(flags);
  const needsFile =
    flags.config !== undefined || (fromEnvironment.url === undefined && !hasPostgresVariables());
  if (!needsFile) return fromEnvironment;
  const config = await loadConfig(flags.config).catch((error: unknown) => {
    if (flags.config !== undefined) throw error;
    return undefined;
  });
  return databaseOptions(flags, config?.database);
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

/** The settings of endpoints as relays have them: from the configuration file, if it is named or there. */
export async function endpointOptions(flags: SharedFlags): Promise<EndpointOptions> {
  const config = await loadConfig(flags.config).catch((error: unknown) => {
    if (flags.config !== undefined) throw error;
    return undefined;
  });
  return config?.endpoints ?? {};
}
