// Direct connection: configures, opens and closes one connection of the driver. Kept apart from connection.ts, whose
// type declarations are published and must not name types of the driver, which has none of its own.

import type { Socket } from 'node:net';

import type pg from 'pg';

import { ConfigurationError } from '../core/errors.js';
import type { ResolvedDatabaseOptions } from './connection.js';
import { ContainedClient } from './contained-client.js';
import { withDeadline } from './deadline.js';
import { isPooled, limitSession } from './session.js';

/** Whether PGHOST, PGDATABASE, PGUSER or the like is set: then the driver uses them. */
export function hasPostgresVariables(): boolean {
  const others = /^PG(HOSTADDR|PORT|DATABASE|USER|SERVICE)$/;
  return (
    process.env['PGHOST'] !== undefined ||
    Object.keys(process.env).some((name) => others.test(name))
  );
}

export function clientConfig(
  options: ResolvedDatabaseOptions,
  url: string | undefined,
  applicationName: string,
): pg.ClientConfig {
  if (url === undefined && !hasPostgresVariables()) {
    throw new ConfigurationError(
      'no database is configured: set DATABASE_URL (postgresql://user@host:5432/name) or the PG* variables, or database.url in waybill.config.ts',
    );
  }
  return {
    ...(url !== undefined && { connectionString: url }),
    application_name: applicationName,
    connectionTimeoutMillis: options.connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  };
}

/**
 * Opens one direct connection, for LISTEN, retention and migrations. `directUrl` may also be a pooler in session
 * mode.
 */
export async function connectDirectly(
  options: ResolvedDatabaseOptions,
  applicationName = 'waybill',
  stream?: () => Socket,
): Promise<pg.Client> {
  const { url, directUrl } = options;
  const client = new ContainedClient({
    ...clientConfig(options, directUrl ?? url, applicationName),
    ...(stream && { stream }),
  });
  // an error between two queries is reported by the next query; without a listener it would end the process
  client.on('error', () => {});
  try {
    await client.connect();
    await prepare(client, options, async () => {
      if (directUrl === undefined && (await isPooled(client))) {
        throw new ConfigurationError(
          'the address of the database leads through a connection pooler, which keeps no session: set database.directUrl (DATABASE_DIRECT_URL) to the address of PostgreSQL itself, or of a pooler in session mode',
        );
      }
      await limitSession(client, options);
    });
  } catch (error) {
    destroy(client);
    throw error;
  }
  return client;
}

/** Limits the wait for a server that accepts a connection and does not answer. */
export async function prepare(
  client: pg.Client | pg.PoolClient,
  { connectTimeoutMs }: ResolvedDatabaseOptions,
  work: () => Promise<void>,
): Promise<void> {
  await withDeadline('prepare session', connectTimeoutMs, work(), () => destroy(client));
}

/** Destroys the socket: a connection that missed a deadline is never used again. */
export function destroy(client: pg.ClientBase): void {
  streamOf(client).destroy();
}

export function isDestroyed(client: pg.ClientBase): boolean {
  return streamOf(client).destroyed;
}

function streamOf(client: pg.ClientBase): Socket {
  return (client as unknown as { connection: { stream: Socket } }).connection.stream;
}
