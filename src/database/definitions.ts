// Destinations and routes as the database keeps them, and the relays that serve them.

import type { ResolvedRetryPolicy } from '../model/retry-policy.js';
import type { Route } from '../model/route.js';
import type { Database } from './connection.js';

export type Definitions = {
  destinations: ({
    name: string;
    kind: string;
    whenDead: string;
    fairness: string;
    ratePerSecond: number | null;
    hasBreaker: boolean;
  } & ResolvedRetryPolicy)[];
  routes: Route[];
};

/** Returns the id of each destination by its name. */
export async function syncDefinitions(
  database: Database,
  definitions: Definitions,
  actor: string,
): Promise<Map<string, number>> {
  const rows = await database.query<{ name: string; id: number }>(
    'sync definitions',
    `SELECT s.name, s.id FROM set_config('waybill.actor', $2, true) a
       CROSS JOIN LATERAL ${database.schema}.sync_definitions(CASE WHEN a IS NOT NULL THEN $1::text::jsonb END) s`,
    [JSON.stringify(definitions), actor],
  );
  return new Map(rows.map((row) => [row.name, row.id]));
}

export type RelayIdentity = {
  id: string;
  name: string;
  version: string;
  configuration: string;
  destinations: string[];
};

/** A circuit breaker that is not closed, as the database shows it. */
export type BreakerReport = { state: 'open' | 'half-open'; since: string; failures: number };

export type Heartbeat = {
  /** The names of living relays that run with another configuration. */
  others: string[];
  /** How many living relays serve each destination, this one included. */
  serving: Record<string, number>;
};

/** Shows that the relay is alive, how its breakers are, and what it cannot do at present. */
export async function heartbeat(
  database: Database,
  relay: RelayIdentity,
  breakers: Record<string, BreakerReport>,
  problems: readonly string[],
): Promise<Heartbeat> {
  const [row] = await database.query<Heartbeat>(
    'heartbeat',
    `SELECT others, serving FROM ${database.schema}.heartbeat($1, $2, $3, $4, $5, $6, $7)`,
    [
      relay.id,
      relay.name,
      relay.version,
      relay.configuration,
      relay.destinations,
      JSON.stringify(breakers),
      problems,
    ],
  );
  return row ?? { others: [], serving: {} };
}

/** The destinations that wait for their rate limit at this relay. */
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

/** An operator's word: recorded with who said it. */
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

/** Refuses a name that no destination has. */
export async function findDestination(database: Database, name: string): Promise<void> {
  await database.query('find destination', `SELECT ${database.schema}.find_destination($1)`, [
    name,
  ]);
}

/** An ordinary message to one destination alone, marked as a test; gives its id. */
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

/** Gives unrouted messages to the routes that want them now, in short transactions; returns how many. */
export async function routeUnrouted(database: Database, actor: string): Promise<number> {
  const batch = 1000;
  let after: string | null = null;
  for (let total = 0; ;) {
    const rows: { routed: number; seen: number; last: string | null }[] = await database.query(
      'route unrouted messages',
      `SELECT routed, seen, last FROM ${database.schema}.route_unrouted($1, $2, $3)`,
      [after, batch, actor],
    );
    total += rows[0]?.routed ?? 0;
    after = rows[0]?.last ?? null;
    if ((rows[0]?.seen ?? 0) < batch) return total;
  }
}

/** The names, if this is not one of them: a misspelt one must not look like an empty one. */
export async function namesUnless(database: Database, name: string): Promise<string[] | null> {
  const rows = await database.query<{ name: string; found: boolean }>(
    'find destination',
    `SELECT name, name = $1 AS found FROM ${database.schema}.destinations
      WHERE name = $1 OR origin = 'file' ORDER BY name = $1 DESC, name LIMIT 50`,
    [name],
  );
  return rows[0]?.found ? null : rows.map((row) => row.name);
}
