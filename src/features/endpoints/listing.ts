// Lists of endpoints: pages through them at a cost that does not grow with their number. A page reads a bounded number
// of endpoints, so with a filter that few of them match it can be short and still have a next one.

import type { Database } from '../../database/connection.js';
import type { EndpointStatus } from './endpoints.js';
import { entriesIn, highestId, invalidPlace, readId } from './listing-order.js';
import type { QueryOrder } from './listing-order.js';

export const endpointStates = ['enabled', 'disabled', 'failing', 'healthy'] as const;
type State = (typeof endpointStates)[number];

/** Every endpoint is in one of these; the worst comes first. */
const problemsFirst = ['failing', 'disabled', 'healthy'] as const;

export type EndpointFilter = {
  tenantId?: string;
  /** `failing` and `healthy` are enabled too. */
  state?: State;
  /** The beginning of the name, of the address or of the tenant. */
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

export type FoundEndpoint = Pick<ListedEndpoint, 'name' | 'tenantId'>;

export type EndpointPage = { endpoints: ListedEndpoint[]; next: string | null };

/** Endpoints that a page with a filter reads at most. */
const readAtMost = 2000;
/** A search with at most this many results finds them by indexes; one with more reads the newest endpoints. */
const searchedAtMost = 1000;
/** Where counting stops: for each endpoint of a list, and for a single one. */
const countedInList = 1000;
const countedForOne = 100_000;

/** Those that fail, then those that are disabled, then the others; each the newest first. */
export async function listProblemsFirst(
  database: Database,
  filter: EndpointFilter,
  page: { limit: number; next?: string },
): Promise<EndpointPage> {
  if (filter.state !== undefined) return listEndpoints(database, filter, page);
  const [, reached, place] = /^(\w+)\.(\d{0,10})$/.exec(page.next ?? 'failing.') ?? [];
  const first = problemsFirst.findIndex((state) => state === reached);
  if (first === -1) throw invalidPlace(page.next);
  const endpoints: ListedEndpoint[] = [];
  for (const state of problemsFirst.slice(first)) {
    const limit = page.limit - endpoints.length;
    const next = state === reached && place ? { next: place } : {};
    const found = await listEndpoints(database, { ...filter, state }, { limit, ...next });
    endpoints.push(...found.endpoints);
    if (found.next !== null) return { endpoints, next: `${state}.${found.next}` };
    const following = problemsFirst[problemsFirst.indexOf(state) + 1];
    if (endpoints.length === page.limit)
      return { endpoints, next: following === undefined ? null : `${following}.` };
  }
  return { endpoints, next: null };
}

/** In one order; newest first if none is given. */
export async function listEndpoints(
  database: Database,
  filter: EndpointFilter,
  page: { limit: number; next?: string; order?: QueryOrder },
): Promise<EndpointPage> {
  const { schema } = database;
  const { tenantId, state, search, labels } = filter;
  const { order = 'newest', next } = page;
  const values: unknown[] = [];
  const value = (given: unknown): string => `$${values.push(given)}`;
  const before = order === 'newest' ? readId(next) : highestId;
  // of one tenant there are few, which its index finds
  const found = tenantId === undefined ? await candidates(database, filter, before) : everyEndpoint;
  // those before an id are no page of another order
  const { ids, end } = order !== 'newest' && found.end !== null ? everyEndpoint : found;
  const isFiltered = state !== undefined || search !== undefined || labels !== undefined;
  const most = isFiltered ? readAtMost : page.limit;
  const among = [
    'e.removed_at IS NULL',
    ...(tenantId === undefined ? [] : [`e.tenant_id = ${value(tenantId)}`]),
    ...(ids === null ? [] : [`e.destination_id = ANY (${value(ids)}::int[])`]),
  ];
  const conditions = [
    ...(state === undefined ? [] : [stateCondition(schema, state)]),
    ...(search === undefined ? [] : [searchCondition(value(search))]),
    ...(labels === undefined ? [] : [`e.labels @> ${value(JSON.stringify(labels))}::text::jsonb`]),
  ];
  const rows = await database.query<
    ListedEndpoint & { place: string | null; walked: number; last: string | null }
  >(
    'list endpoints',
    `WITH entries AS MATERIALIZED (
       SELECT x.*, row_number() OVER () AS number
         FROM (${entriesIn(schema, { order, next, among, most }, value)}) x),
     found AS MATERIALIZED (
       -- OFFSET 0 makes it one look-up for each until the page is full, instead of a join with all destinations
       SELECT e.destination_id FROM (SELECT n.* FROM entries n ORDER BY n.number OFFSET 0) e
        CROSS JOIN LATERAL (SELECT x.* FROM ${schema}.destinations x WHERE x.id = e.destination_id OFFSET 0) d
        WHERE ${conditions.join(' AND ') || 'true'}
        ORDER BY e.number LIMIT ${value(page.limit)}),
     walk AS (SELECT count(*)::int AS walked, (SELECT e.place FROM entries e ORDER BY e.number DESC LIMIT 1) AS last
                FROM entries)
     SELECT w.walked, w.last, e.place, ${columns(schema, countedInList)}
       FROM walk w
       LEFT JOIN (found f JOIN entries e ON e.destination_id = f.destination_id
                          JOIN ${schema}.destinations d ON d.id = f.destination_id) ON true
      ORDER BY e.number`,
    values,
  );
  // there is always a row, which says how far the page has read
  const listed = rows.filter(({ place }) => place !== null);
  const isFull = listed.length === page.limit;
  const place = isFull ? listed.at(-1)?.place : rows[0]?.walked === most ? rows[0].last : end;
  return {
    endpoints: listed.map(
      ({ place: _place, walked: _walked, last: _last, ...endpoint }) => endpoint,
    ),
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

/** An endpoint without its settings and counts. Null as above. */
export async function findEndpoint(
  database: Database,
  { name, tenantId }: { name: string; tenantId?: string },
): Promise<FoundEndpoint | null> {
  const { schema } = database;
  const [row] = await database.query<FoundEndpoint>(
    'find endpoint',
    `SELECT d.name, e.tenant_id AS "tenantId"
       FROM ${schema}.destinations d JOIN ${schema}.endpoints e ON e.destination_id = d.id
      WHERE d.name = $1 AND e.removed_at IS NULL AND ($2::text IS NULL OR e.tenant_id = $2)`,
    [name, tenantId ?? null],
  );
  return row ?? null;
}

/** The endpoints among which a page looks; null: all of them. `end`: there are more, before this id. */
type Candidates = { ids: number[] | null; end: number | null };
const everyEndpoint: Candidates = { ids: null, end: null };

/** Finds the endpoints of a search, with labels, or those that are failing or disabled, by indexes. */
async function candidates(
  database: Database,
  { search, labels, state }: EndpointFilter,
  before: number,
): Promise<Candidates> {
  if (search !== undefined) return { ids: await searched(database, search), end: null };
  if (labels !== undefined) return { ids: await labelled(database, labels), end: null };
  if (state === 'failing') return failingCandidates(database, before);
  return state === 'disabled' ? disabledCandidates(database, before) : everyEndpoint;
}

/** The ids of all endpoints with these labels; null if there are many. */
async function labelled(
  database: Database,
  labels: Record<string, string>,
): Promise<number[] | null> {
  const rows = await database.query<{ id: number }>(
    'search endpoints',
    `SELECT e.destination_id AS id FROM ${database.schema}.endpoints e
      WHERE e.removed_at IS NULL AND e.labels IS NOT NULL AND e.labels @> $1::text::jsonb LIMIT $2`,
    [JSON.stringify(labels), searchedAtMost + 1],
  );
  return rows.length > searchedAtMost ? null : rows.map(({ id }) => id);
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
       WHERE e.removed_at IS NULL AND e.url COLLATE "C" ^@ $1::text LIMIT $2)
     UNION ALL
     (SELECT e.destination_id FROM ${schema}.endpoints e
       WHERE e.removed_at IS NULL AND e.tenant_id COLLATE "C" ^@ $1::text LIMIT $2)`,
    [search, searchedAtMost + 1],
  );
  return rows.length > searchedAtMost ? null : rows.map(({ id }) => id);
}

function failingCandidates(database: Database, before: number): Promise<Candidates> {
  return newestOf(
    database,
    `SELECT f.destination_id AS id FROM ${database.schema}.endpoint_failures f
      WHERE f.destination_id < $1 ORDER BY f.destination_id DESC LIMIT $2`,
    before,
  );
}

function disabledCandidates(database: Database, before: number): Promise<Candidates> {
  return newestOf(
    database,
    `SELECT d.id FROM ${database.schema}.destinations d
      WHERE d.origin = 'database' AND d.paused_at IS NOT NULL AND d.id < $1 ORDER BY d.id DESC LIMIT $2`,
    before,
  );
}

async function newestOf(database: Database, query: string, before: number): Promise<Candidates> {
  const rows = await database.query<{ id: number }>('find endpoints', query, [before, readAtMost]);
  const ids = rows.map(({ id }) => id);
  return { ids, end: ids.length === readAtMost ? (ids.at(-1) ?? null) : null };
}

function searchCondition(search: string): string {
  return `(d.name COLLATE "C" ^@ ${search}::text OR e.url COLLATE "C" ^@ ${search}::text
    OR e.tenant_id COLLATE "C" ^@ ${search}::text)`;
}

function stateCondition(schema: string, state: State): string {
  return {
    enabled: 'd.paused_at IS NULL',
    disabled: 'd.paused_at IS NOT NULL',
    failing: failing(schema),
    healthy: `d.paused_at IS NULL AND NOT ${failing(schema)}`,
  }[state];
}

function failing(schema: string): string {
  return `(d.paused_at IS NULL AND ${failingSince(schema)} IS NOT NULL)`;
}

function failingSince(schema: string): string {
  return `(SELECT f.failing_since FROM ${schema}.endpoint_failures f WHERE f.destination_id = d.id)`;
}

/**
 * Keyed and unkeyed deliveries have separate indexes. The orders are those of the indexes. Without them, the planner
 * reads whole tables when most deliveries belong to one destination.
 */
function waiting(schema: string, most: number): string {
  return `(SELECT count(*)::int
     FROM ((SELECT FROM ${schema}.deliveries w WHERE w.destination_id = d.id AND w.key_id IS NULL
             ORDER BY w.available_at, w.message_id LIMIT ${most})
           UNION ALL
           (SELECT FROM ${schema}.deliveries w WHERE w.destination_id = d.id AND w.key_id IS NOT NULL
             ORDER BY w.key_id, w.sequence LIMIT ${most})
           LIMIT ${most}) x)`;
}

function dead(schema: string, most: number): string {
  return `(SELECT count(*)::int
     FROM (SELECT FROM ${schema}.dead_letters l WHERE l.destination_id = d.id
            ORDER BY l.dead_at, l.message_id LIMIT ${most}) x)`;
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
    waiting: waiting(schema, countedAtMost),
    dead: dead(schema, countedAtMost),
    createdAt: 'e.created_at',
    changedAt: 'e.changed_at',
  };
  return Object.entries(sources)
    .map(([name, source]) => `${source} AS "${name}"`)
    .join(', ');
}
