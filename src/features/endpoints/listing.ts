// Lists of endpoints: pages through them, newest first, at a cost that does not grow with their number. A page reads a
// bounded number of endpoints, so with a filter that few of them match it can be short and still have a next one.

import { ConfigurationError, shown } from '../../core/errors.js';
import type { Database } from '../../database/connection.js';
import type { EndpointStatus } from './endpoints.js';

export const endpointStates = ['enabled', 'disabled', 'failing'] as const;

export type EndpointFilter = {
  tenantId?: string;
  /** `failing` is enabled too. */
  state?: (typeof endpointStates)[number];
  /** The beginning of the name or of the address. */
  search?: string;
  /** With all of these labels. */
  labels?: Record<string, string>;
};

export type ListedEndpoint = Omit<EndpointStatus, 'createdAt' | 'changedAt' | 'failingSince'> & {
  createdAt: Date;
  changedAt: Date;
  failingSince: Date | null;
  /** It is enabled, and tries have failed since its last success. */
  failing: boolean;
};

export type EndpointPage = { endpoints: ListedEndpoint[]; next: string | null };

/** Endpoints that a page with a filter reads at most. */
const readAtMost = 2000;
/** A search with at most this many results finds them by indexes; one with more reads the newest endpoints. */
const searchedAtMost = 1000;
/** Where counting stops: for each endpoint of a list, and for a single one. */
const countedInList = 1000;
const countedForOne = 100_000;

/** Newest first. */
export async function listEndpoints(
  database: Database,
  filter: EndpointFilter,
  page: { limit: number; next?: string },
): Promise<EndpointPage> {
  const { schema } = database;
  const { tenantId, state, search, labels } = filter;
  const values: unknown[] = [];
  const value = (given: unknown): string => `$${values.push(given)}`;
  const ids =
    search === undefined || tenantId !== undefined ? null : await searched(database, search);
  const isFiltered = state !== undefined || search !== undefined || labels !== undefined;
  const most = isFiltered ? readAtMost : page.limit;
  const among = [
    'e.removed_at IS NULL',
    `e.destination_id < ${value(readPlace(page.next))}`,
    ...(tenantId === undefined ? [] : [`e.tenant_id = ${value(tenantId)}`]),
    ...(ids === null ? [] : [`e.destination_id = ANY (${value(ids)}::int[])`]),
  ];
  const conditions = [
    ...(state === undefined ? [] : [stateCondition(schema, state)]),
    ...(search === undefined ? [] : [searchCondition(value(search))]),
    ...(labels === undefined ? [] : [`e.labels @> ${value(JSON.stringify(labels))}::text::jsonb`]),
  ];
  const rows = await database.query<
    ListedEndpoint & { id: number | null; walked: number; last: number }
  >(
    'list endpoints',
    `WITH entries AS MATERIALIZED (
       SELECT e.* FROM ${schema}.endpoints e WHERE ${among.join(' AND ')}
        ORDER BY e.destination_id DESC LIMIT ${value(most)}),
     found AS MATERIALIZED (
       -- OFFSET 0 makes it one look-up for each, instead of a join with all destinations
       SELECT e.destination_id FROM entries e
        CROSS JOIN LATERAL (SELECT x.* FROM ${schema}.destinations x WHERE x.id = e.destination_id OFFSET 0) d
        WHERE ${conditions.join(' AND ') || 'true'}
        ORDER BY e.destination_id DESC LIMIT ${value(page.limit)}),
     walk AS (SELECT count(*)::int AS walked, min(destination_id) AS last FROM entries)
     SELECT w.walked, w.last, f.destination_id AS id, ${columns(schema, countedInList)}
       FROM walk w
       LEFT JOIN (found f JOIN entries e ON e.destination_id = f.destination_id
                          JOIN ${schema}.destinations d ON d.id = f.destination_id) ON true
      ORDER BY f.destination_id DESC`,
    values,
  );
  // there is always a row, which says how far the page has read
  const found = rows.filter(({ id }) => id !== null);
  const isFull = found.length === page.limit;
  const place = isFull ? found.at(-1)?.id : rows[0]?.walked === most ? rows[0].last : null;
  return {
    endpoints: found.map(({ id: _id, walked: _walked, last: _last, ...endpoint }) => endpoint),
    next: place?.toString() ?? null,
  };
}

/** Null if there is no such endpoint, or if it belongs to another tenant. */
export async function readListedEndpoint(
  database: Database,
  { name, tenantId }: { name: string; tenantId?: string },
): Promise<ListedEndpoint | null> {
  const { schema } = database;
  const [row] = await database.query<ListedEndpoint>(
    'read endpoint',
    `SELECT ${columns(schema, countedForOne)}
       FROM ${schema}.destinations d JOIN ${schema}.endpoints e ON e.destination_id = d.id
      WHERE d.name = $1 AND e.removed_at IS NULL AND ($2::text IS NULL OR e.tenant_id = $2)`,
    [name, tenantId ?? null],
  );
  return row ?? null;
}

/** The ids of all endpoints that a search finds; null if there are many. */
async function searched(database: Database, search: string): Promise<number[] | null> {
  const { schema } = database;
  const rows = await database.query<{ id: number }>(
    'search endpoints',
    `(SELECT d.id FROM ${schema}.destinations d
       WHERE d.origin = 'database' AND d.name COLLATE "C" ^@ $1::text LIMIT $2)
     UNION ALL
     (SELECT e.destination_id FROM ${schema}.endpoints e
       WHERE e.removed_at IS NULL AND e.url COLLATE "C" ^@ $1::text LIMIT $2)`,
    [search, searchedAtMost + 1],
  );
  return rows.length > searchedAtMost ? null : rows.map(({ id }) => id);
}

function searchCondition(search: string): string {
  return `(d.name COLLATE "C" ^@ ${search}::text OR e.url COLLATE "C" ^@ ${search}::text)`;
}

function stateCondition(schema: string, state: NonNullable<EndpointFilter['state']>): string {
  return {
    enabled: 'd.paused_at IS NULL',
    disabled: 'd.paused_at IS NOT NULL',
    failing: failing(schema),
  }[state];
}

function failing(schema: string): string {
  return `(d.paused_at IS NULL AND ${failingSince(schema)} IS NOT NULL)`;
}

function failingSince(schema: string): string {
  return `(SELECT f.failing_since FROM ${schema}.endpoint_failures f WHERE f.destination_id = d.id)`;
}

/** Never a secret: `fingerprints` only tell them apart. */
function columns(schema: string, countedAtMost: number): string {
  const sources = {
    name: 'd.name',
    url: 'e.url',
    topics: 'e.topics',
    tenantId: 'e.tenant_id',
    namespace: 'e.namespace',
    description: 'e.description',
    body: 'e.body',
    auth: `e.auth - 'sealed'`,
    filter: 'e.filter',
    expireAfterMs: 'e.expire_after_ms::float8',
    rate: 'e.rate',
    concurrency: 'e.concurrency',
    timeoutMs: 'e.timeout_ms',
    labels: `coalesce(e.labels, '{}')`,
    enabled: 'd.paused_at IS NULL',
    failing: failing(schema),
    failingSince: failingSince(schema),
    disabledBecause: 'coalesce(d.paused_reason, d.paused_code)',
    fingerprints: `ARRAY (SELECT s.value ->> 'fingerprint' FROM jsonb_array_elements(e.secrets) WITH ORDINALITY s ORDER BY s.ordinality)`,
    waiting: `(SELECT count(*)::int FROM (SELECT FROM ${schema}.deliveries w WHERE w.destination_id = d.id LIMIT ${countedAtMost}) x)`,
    dead: `(SELECT count(*)::int FROM (SELECT FROM ${schema}.dead_letters l WHERE l.destination_id = d.id LIMIT ${countedAtMost}) x)`,
    createdAt: 'e.created_at',
    changedAt: 'e.changed_at',
  };
  return Object.entries(sources)
    .map(([name, source]) => `${source} AS "${name}"`)
    .join(', ');
}

function readPlace(next: string | undefined): number {
  const place = next === undefined ? 2_147_483_647 : Number(/^\d{1,10}$/.exec(next)?.[0]);
  if (!(place <= 2_147_483_647))
    throw new ConfigurationError(`next is ${shown(next)}: pass next from the previous page`);
  return place;
}
