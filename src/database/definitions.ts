// Destinations for operators, and the heartbeats of relays.

import type { Application } from '../core/application.js';
import type { Database } from './connection.js';

export type RelayIdentity = {
  id: string;
  name: string;
  version: string;
  application: Application;
  configuration: string;
  destinations: string[];
  /** It serves the endpoints of the database. */
  endpoints: boolean;
};

/** A circuit breaker that is not closed, as the database shows it. */
export type BreakerReport = { state: 'open' | 'half-open'; since: string; failures: number };

export type Heartbeat = {
  /** The names of living relays of the application that run with another configuration. */
  others: string[];
  /** How many living relays serve each destination, this one included. */
  serving: Record<string, number>;
  /** How many living relays serve the endpoints, this one included. */
  servingEndpoints: number;
};

/** Reports that the relay is alive, with its circuit breakers and its present problems. */
export async function heartbeat(
  database: Database,
  relay: RelayIdentity,
  breakers: Record<string, BreakerReport>,
  problems: readonly string[],
): Promise<Heartbeat> {
  const [row] = await database.query<Heartbeat>(
    'heartbeat',
    `SELECT others, serving, serving_endpoints AS "servingEndpoints" FROM ${database.schema}.heartbeat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
    [
      relay.id,
      relay.name,
      relay.version,
      relay.configuration,
      relay.destinations,
      JSON.stringify(breakers),
      problems,
      relay.application.name,
      relay.application.version,
      relay.endpoints,
    ],
  );
  return row ?? { others: [], serving: {}, servingEndpoints: 1 };
}

/** Stores which destinations wait for their rate limit at this relay. */
export async function tellLimits(
  database: Database,
  relayId: string,
  limited: readonly string[],
): Promise<void> {
  await database.query('tell limits', `SELECT ${database.schema}.tell_limits($1, $2)`, [
    relayId,
    limited,
  ]);
}

/** Pauses or resumes a destination on behalf of an operator, and records the operator's name. */
export async function setPaused(
  database: Database,
  destination: string,
  paused: boolean,
  actor: string,
  reason: string | null,
): Promise<void> {
  await database.query('pause', `SELECT ${database.schema}.set_paused($1, $2, $3, $4)`, [
    destination,
    paused,
    actor,
    reason,
  ]);
}

/** Throws if no destination has this name. */
export async function findDestination(database: Database, name: string): Promise<void> {
  await database.query('find destination', `SELECT ${database.schema}.find_destination($1)`, [
    name,
  ]);
}

/** The kind of a destination; null if there is none of this name. */
export async function kindOf(database: Database, name: string): Promise<string | null> {
  const [row] = await database.query<{ kind: string }>(
    'find destination',
    `SELECT kind FROM ${database.schema}.destinations WHERE name = $1`,
    [name],
  );
  return row?.kind ?? null;
}

/** Enqueues a test message for one destination only; returns its id. */
export async function sendTest(
  database: Database,
  destination: string,
  actor: string,
): Promise<string> {
  const [row] = await database.query<{ id: string }>(
    'send test',
    `SELECT ${database.schema}.send_test($1, $2) AS id`,
    [destination, actor],
  );
  if (row === undefined) throw new Error('the database gave no answer');
  return row.id;
}

export async function signOff(database: Database, relayId: string): Promise<void> {
  await database.query('sign off', `SELECT ${database.schema}.sign_off($1)`, [relayId]);
}

/**
 * Null if the destination exists, otherwise at most 50 known names, without endpoints, so that a misspelt name does not
 * look like an empty destination.
 */
export async function namesUnless(database: Database, name: string): Promise<string[] | null> {
  if ((await kindOf(database, name)) !== null) return null;
  const rows = await database.query<{ name: string }>(
    'find destination',
    `SELECT name FROM ${database.schema}.destinations WHERE origin = 'file' ORDER BY name LIMIT 50`,
  );
  return rows.map((row) => row.name);
}
