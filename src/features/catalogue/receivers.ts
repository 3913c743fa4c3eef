// Receivers of topics: the destinations that routes and cursors name in configurations and SQL. Endpoints of customers
// are many, so they are only counted, for one topic at a time.

import type { Database } from '../../database/connection.js';

/** A route, or a topic that a cursor reads. */
export type Receiver = {
  destination: string;
  /** A topic, or `user.*` or `*`. */
  topic: string;
  /** Null: all. */
  namespace: string | null;
  tenantId: string | null;
};

/** `destinations`: only these. */
export async function readReceivers(
  database: Database,
  destinations: readonly string[] | null = null,
): Promise<Receiver[]> {
  return database.query<Receiver>(
    'read receivers',
    `SELECT r.destination, r.topic, r.namespace, r.tenant_id AS "tenantId" FROM (${receivers(database)}) r
      WHERE $1::text[] IS NULL OR r.destination = ANY ($1) ORDER BY 1, 2, 3, 4`,
    [destinations],
  );
}

/** How many topics receivers name, without patterns and without these. */
export async function countNamedTopics(
  database: Database,
  except: readonly string[],
): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'count named topics',
    `SELECT count(DISTINCT r.topic)::int AS count FROM (${receivers(database)}) r
      WHERE r.topic NOT LIKE '%*' AND r.topic <> ALL ($1)`,
    [except],
  );
  return row?.count ?? 0;
}

function receivers({ schema }: Database): string {
  return `SELECT d.name AS destination, r.topic, r.namespace, r.tenant_id
       FROM ${schema}.destinations d JOIN ${schema}.routes r ON r.destination_id = d.id
      WHERE d.origin = 'file' AND d.configured
      UNION
     SELECT d.name, f.topic, f.namespace, f.tenant_id
       FROM ${schema}.cursors c JOIN ${schema}.destinations d ON d.id = c.destination_id
       CROSS JOIN LATERAL unnest(c.topics, c.namespaces, c.tenant_ids) f(topic, namespace, tenant_id)
      WHERE c.closing_since IS NULL AND c.kept IS NULL`;
}

/** Counted up to this number. */
export const mostEndpoints = 10_000;

/** How many endpoints have a route for this topic, whatever their tenants. */
export async function countEndpoints(database: Database, topic: string): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'count endpoints of a topic',
    `SELECT count(*)::int AS count
       FROM (SELECT DISTINCT r.destination_id FROM ${database.schema}.routes r
              WHERE r.owner = 'endpoints' AND r.topic = ANY ($1) LIMIT $2) e`,
    [patternsOf(topic), mostEndpoints],
  );
  return row?.count ?? 0;
}

/** Every route topic that matches this topic. */
function patternsOf(topic: string): string[] {
  const dots = [...topic.matchAll(/\./g)].map(({ index }) => `${topic.slice(0, index)}.*`);
  return ['*', topic, ...dots];
}
