// SQL calls of endpoints for relays and for the commands that open secrets: reads changes, reads endpoints with their
// sealed secrets, stores secrets that were sealed with another key, and stores the settings that all endpoints share.

import type { RateLimit } from '../../core/destination-limits.js';
import type { ResolvedRetryPolicy } from '../../core/retry-policy.js';
import type { Database } from '../../database/connection.js';
import type { ResolvedEndpointOptions } from './options.js';
import type { SealedAuth } from './secrets.js';

export type EndpointRow = {
  destinationId: number;
  name: string;
  /** Null: the endpoint gets the messages of all tenants. */
  tenantId: string | null;
  url: string;
  body: string | null;
  secrets: { sealed: string; fingerprint: string; since: string }[];
  sealedHeaders: string | null;
  sealedQuery: string | null;
  auth: SealedAuth | null;
  /** Null: messages never expire. */
  expireAfterMs: number | null;
  /** Null, here and below: as the settings of the relays say. */
  rate: RateLimit | null;
  concurrency: number | null;
  timeoutMs: number | null;
  version: number;
};

/** A change of an endpoint that a relay has not seen yet. */
export type EndpointChange = { destinationId: number; version: number; removed: boolean };

const columns =
  'destination_id AS "destinationId", name, tenant_id AS "tenantId", url, body, secrets, sealed_headers AS "sealedHeaders", sealed_query AS "sealedQuery", auth, expire_after_ms::float8 AS "expireAfterMs", rate, concurrency, timeout_ms AS "timeoutMs", version';

/** Returns changes since the snapshot, or none for null, and the snapshot for the next call. */
export async function readEndpointChanges(
  database: Database,
  since: string | null,
): Promise<{ seen: string | null; changes: EndpointChange[] }> {
  const rows = await database.query<
    EndpointChange & { seen: string; destinationId: number | null }
  >(
    'look for endpoints',
    `SELECT seen::text AS seen, destination_id AS "destinationId", version, removed
       FROM ${database.schema}.endpoint_changes($1::text::pg_snapshot)`,
    [since],
  );
  return {
    seen: rows[0]?.seen ?? since,
    // without changes there is one row, with only the snapshot
    changes: rows.filter((row) => row.destinationId !== null),
  };
}

/** Returns one endpoint by its name, if it exists. */
export async function readEndpoint(
  database: Database,
  name: string,
): Promise<EndpointRow | undefined> {
  const rows = await database.query<EndpointRow>(
    'read endpoint',
    `SELECT ${columns} FROM ${database.schema}.read_endpoints() WHERE name = $1`,
    [name],
  );
  return rows[0];
}

/** Returns the endpoints of these destinations, or all of them. Removed ones are left out. */
export async function readEndpoints(
  database: Database,
  destinationIds: readonly number[] | null = null,
): Promise<EndpointRow[]> {
  return database.query<EndpointRow>(
    'read endpoints',
    `SELECT ${columns} FROM ${database.schema}.read_endpoints($1)`,
    [destinationIds],
  );
}

export async function syncEndpointSettings(
  database: Database,
  settings: ResolvedRetryPolicy & { whenDead: string } & Pick<
      ResolvedEndpointOptions,
      'maxPerTenant' | 'warnAfterMs' | 'disableAfterMs' | 'maxConcurrency' | 'maxTimeoutMs'
    >,
): Promise<void> {
  await database.query(
    'sync settings of endpoints',
    `SELECT ${database.schema}.sync_endpoint_settings($1::text::jsonb)`,
    [JSON.stringify(settings)],
  );
}

/** False if the endpoint was changed since it was read. */
export async function resealEndpoint(
  database: Database,
  { name, version }: EndpointRow,
  parts: Pick<EndpointRow, 'sealedHeaders' | 'sealedQuery' | 'auth'> & {
    secrets: readonly object[];
  },
  actor: string,
): Promise<boolean> {
  const [row] = await database.query<{ done: boolean }>(
    'reseal endpoint',
    `SELECT ${database.schema}.reseal_endpoint($1, $2, $3::text::jsonb, $4, $5, $6::text::jsonb, $7) AS done`,
    [
      name,
      version,
      JSON.stringify(parts.secrets),
      parts.sealedHeaders,
      parts.sealedQuery,
      parts.auth && JSON.stringify(parts.auth),
      actor,
    ],
  );
  return row?.done ?? false;
}
