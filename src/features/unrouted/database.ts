// Unrouted messages: lists, routes and discards them. Changes are made in short transactions, so that a million
// messages block nothing.

import type { Database } from '../../database/connection.js';

export type UnroutedFilter = {
  topic?: string;
  namespace?: string;
  tenantId?: string;
  /** Only messages created before this time. */
  before?: Date;
};

/** Unrouted messages of one topic, namespace and tenant. */
export type UnroutedGroup = {
  topic: string;
  namespace: string;
  tenantId: string | null;
  count: number;
  oldestAt: Date;
  newestAt: Date;
  /** The id of the newest message. */
  example: string;
  /** A route matches them now: `waybill unrouted route` delivers them. */
  hasRoute: boolean;
  /** Only split routes match them. `waybill unrouted route` leaves them: the other system may have sent them. */
  onlySplit: boolean;
  /** How many of them `waybill unrouted route` would deliver after later messages of their key. */
  late: number;
};

export type UnroutedList = {
  count: number;
  /** False if there are more than were counted: then every count is "at least". */
  isExact: boolean;
  groups: UnroutedGroup[];
};

/** The number of messages that a list counts at most. */
const listed = 100_000;
const batch = 1000;

export async function listUnrouted(
  database: Database,
  { topic, namespace, tenantId, before }: UnroutedFilter = {},
  most = listed,
): Promise<UnroutedList> {
  const rows = await database.query<UnroutedGroup & { isExact: boolean }>(
    'list unrouted messages',
    `SELECT group_topic AS topic, group_namespace AS namespace, group_tenant_id AS "tenantId", count,
            oldest_at AS "oldestAt", newest_at AS "newestAt", example, has_route AS "hasRoute",
            only_split AS "onlySplit", late, is_exact AS "isExact"
       FROM ${database.schema}.unrouted_groups($1, $2, $3, $4, $5)`,
    [topic, namespace, tenantId, before, most],
  );
  return {
    count: rows.reduce((sum, { count }) => sum + count, 0),
    isExact: rows.every(({ isExact }) => isExact),
    groups: rows.map(({ isExact: _isExact, ...group }) => group),
  };
}

/** The number of unrouted messages, up to 10,000. */
export async function countUnrouted(database: Database): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'count unrouted messages',
    `SELECT ${database.schema}.count_unrouted() AS count`,
  );
  return row?.count ?? 0;
}

type Step = { changed: number; seen: number; last: string | null };

/** Delivers messages that have a route now; returns how many. */
export async function routeUnrouted(
  database: Database,
  actor: string,
  onProgress?: (total: number) => void,
): Promise<number> {
  return inSteps(
    (after) =>
      database.query<Step>(
        'route unrouted messages',
        `SELECT routed AS changed, seen, last FROM ${database.schema}.route_unrouted($1, $2, $3)`,
        [after, batch, actor],
      ),
    onProgress,
  );
}

/** Discards messages for good; returns how many. */
export async function discardUnrouted(
  database: Database,
  { topic, namespace, tenantId, before }: UnroutedFilter,
  actor: string,
  onProgress?: (total: number) => void,
): Promise<number> {
  return inSteps(
    (after) =>
      database.query<Step>(
        'discard unrouted messages',
        `SELECT discarded AS changed, seen, last FROM ${database.schema}.discard_unrouted($1, $2, $3, $4, $5, $6, $7)`,
        [topic, namespace, tenantId, before, after, batch, actor],
      ),
    onProgress,
  );
}

async function inSteps(
  step: (after: string | null) => Promise<Step[]>,
  onProgress: (total: number) => void = () => {},
): Promise<number> {
  let after: string | null = null;
  for (let total = 0; ;) {
    const [done]: Step[] = await step(after);
    total += done?.changed ?? 0;
    after = done?.last ?? null;
    onProgress(total);
    if ((done?.seen ?? 0) < batch) return total;
  }
}
