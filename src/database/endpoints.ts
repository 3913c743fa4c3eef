// Webhook endpoints of the database, as a relay reads them: sealed, with the version that tells whether anything
// changed.

import type { ResolvedRetryPolicy } from '../model/retry-policy.js';
import type { Database } from './connection.js';

export type EndpointRow = {
  destinationId: number;
  name: string;
  url: string;
  body: string | null;
  secrets: { sealed: string; fingerprint: string; since: string }[];
  sealedHeaders: string | null;
  version: number;
  removed: boolean;
};

const columns =
  'destination_id AS "destinationId", name, url, body, secrets, sealed_headers AS "sealedHeaders", version, removed';

/** What changed since the snapshot, or with null all there is; and the snapshot for the next time. */
export async function readEndpointChanges(
  database: Database,
  since: string | null,
): Promise<{ seen: string | null; changes: EndpointRow[] }> {
  const rows = await database.query<EndpointRow & { seen: string; destinationId: number | null }>(
    'look for endpoints',
    `SELECT seen::text AS seen, ${columns} FROM ${database.schema}.endpoint_changes($1::text::pg_snapshot)`,
    [since],
  );
  return {
    seen: rows[0]?.seen ?? since,
    changes: rows.filter((row) => row.destinationId !== null),
  };
}

/** One endpoint by its name, if it exists. */
export async function readEndpoint(
  database: Database,
  name: string,
): Promise<EndpointRow | undefined> {
  const rows = await database.query<EndpointRow>(
    'read endpoint',
    `SELECT ${columns} FROM ${database.schema}.endpoint_changes() WHERE name = $1`,
    [name],
  );
  return rows[0];
}

/** All that exist. */
export async function readEndpoints(database: Database): Promise<EndpointRow[]> {
  return (await readEndpointChanges(database, null)).changes;
}

export async function syncEndpointSettings(
  database: Database,
  settings: ResolvedRetryPolicy & { whenDead: string },
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
  parts: { secrets: readonly object[]; sealedHeaders: string | null },
  actor: string,
): Promise<boolean> {
  const [row] = await database.query<{ done: boolean }>(
    'reseal endpoint',
    `SELECT ${database.schema}.reseal_endpoint($1, $2, $3::text::jsonb, $4, $5) AS done`,
    [name, version, JSON.stringify(parts.secrets), parts.sealedHeaders, actor],
  );
  return row?.done ?? false;
}
