// Declarations of destinations and routes, made by a running relay or by `waybill apply`. The first routes of an
// application also route its earlier unrouted messages. Most of them are routed in short transactions before the routes
// are added, so producers wait only for the rest.

import { setTimeout as pause } from 'node:timers/promises';

import { ConfigurationError } from '../../core/errors.js';
import type { Application } from '../../core/application.js';
import type { SingleRoute } from '../../core/route.js';
import type { Database } from '../../database/connection.js';
import { handOverCursors } from '../../database/cursors.js';
import type { Definitions } from '../../relay/setup.js';

export type Declaration = { application: Application; definitions: Definitions };

/**
 * A drain only adds definitions. A running relay declares `again` if it could not confirm its declaration for ten
 * minutes.
 */
export type DeclaresAs = 'start' | 'drain' | 'again';

/** `leave`: no longer declared, but not removed yet. */
export type DefinitionChange = {
  change: 'add' | 'change' | 'remove' | 'leave';
  destination?: string;
  route?: SingleRoute;
  /** What a feature has declared, such as `watch`. */
  [beside: string]: unknown;
};

/** The relay id under which `waybill apply` declares. */
export const appliedId = '00000000-0000-0000-0000-000000000000';

const batch = 2000;
const shortestPauseMs = 200;
const longestPauseMs = 5000;
/** How long to wait for producers' open transactions before the first routes are added or a mode is changed. */
const defaultLockWaitMs = 20_000;

/** `madeAt`: when the relay first declared its configuration, if it declares it again. */
export type Declarer = { id: string; declares?: DeclaresAs; madeAt?: string | undefined };

/** `ids`: the ids of the destinations by name. */
export type Declared = { ids: Map<string, number>; madeAt: string | undefined };

/** Declares the configuration of a relay, and adds missing definitions. */
export async function syncDefinitions(
  database: Database,
  declaration: Declaration,
  { id, declares = 'start', madeAt }: Declarer,
  actor: string,
  lockWaitMs = defaultLockWaitMs,
): Promise<Declared> {
  const { application, definitions } = declaration;
  const rows = await patiently(async () => {
    const horizon = await routeEarlier(database, declaration, actor);
    return database.query<{ name: string; id: number; madeAt: string }>(
      'declare definitions',
      `SELECT s.name, s.id, s.made_at::text AS "madeAt" FROM set_config('waybill.actor', $1, true) a CROSS JOIN LATERAL ${database.schema}.sync_definitions(
         CASE WHEN a IS NOT NULL THEN $2::text::jsonb END, $3, $4, $5, $6::text::xid8, $7, $8) s`,
      [
        actor,
        JSON.stringify(definitions),
        application.name,
        application.version,
        id,
        horizon,
        declares,
        madeAt ?? null,
      ],
    );
  }, lockWaitMs);
  await handOverCursors(database);
  return { ids: new Map(rows.map((row) => [row.name, row.id])), madeAt: rows[0]?.madeAt };
}

export type ApplyOptions = {
  prune: boolean;
  dryRun: boolean;
  actor: string;
  /** What features declare beside destinations and routes; what is left out stays as it is. */
  beside?: Readonly<Record<string, unknown>>;
};

/**
 * Declares a configuration without a relay; it holds until the next call. Applies all of it or nothing, and returns
 * what changed or would change. A dry run comes first, so that a refused configuration routes no earlier messages.
 */
export async function applyDefinitions(
  database: Database,
  declaration: Declaration,
  options: ApplyOptions,
): Promise<DefinitionChange[]> {
  const planned = await patiently(() =>
    applyOnce(database, declaration, { ...options, dryRun: true }, null),
  );
  if (options.dryRun) return planned;
  const applied = await patiently(async () => {
    const horizon = await routeEarlier(database, declaration, options.actor);
    return applyOnce(database, declaration, options, horizon);
  });
  await handOverCursors(database);
  // destinations that earlier messages were routed to are stored already
  const isStoredBefore = ({ change, destination }: DefinitionChange) =>
    change === 'add' &&
    destination !== undefined &&
    applied.every((each) => each.destination !== destination);
  return [...planned.filter(isStoredBefore), ...applied];
}

async function applyOnce(
  database: Database,
  { application, definitions }: Declaration,
  { prune, dryRun, actor, beside = {} }: ApplyOptions,
  horizon: string | null,
): Promise<DefinitionChange[]> {
  const [row] = await database.query<{ changes: DefinitionChange[] }>(
    'apply definitions',
    `SELECT s.changes FROM set_config('waybill.actor', $1, true) a CROSS JOIN LATERAL ${database.schema}.apply_definitions(
       CASE WHEN a IS NOT NULL THEN $2::text::jsonb END, $3, $4, $5, $6, $7::text::xid8, $8::text::jsonb) s(changes)`,
    [
      actor,
      JSON.stringify(definitions),
      application.name,
      application.version,
      prune,
      dryRun,
      horizon,
      JSON.stringify(beside),
    ],
  );
  return row?.changes ?? [];
}

/** Routes earlier unrouted messages of a new application; returns the first transaction that may have more. */
async function routeEarlier(
  database: Database,
  { application, definitions }: Declaration,
  actor: string,
): Promise<string | null> {
  let horizon: string | null = null;
  for (let after: string | null = null; ;) {
    const rows: { seen: number; last: string | null; horizon: string | null }[] =
      await database.query(
        'route earlier messages',
        `SELECT r.seen, r.last, r.horizon::text FROM set_config('waybill.actor', $1, true) a CROSS JOIN LATERAL ${database.schema}.route_earlier(
           CASE WHEN a IS NOT NULL THEN $2::text::jsonb END, $3, $4, $5) r`,
        [actor, JSON.stringify(definitions), application.name, after, batch],
      );
    horizon ??= rows[0]?.horizon ?? null;
    after = rows[0]?.last ?? null;
    if ((rows[0]?.seen ?? 0) < batch) return horizon;
  }
}

/**
 * Retries while a producer's transaction holds the lock. Each try is short and the pauses grow, so that other producers
 * do not wait long.
 */
async function patiently<T>(work: () => Promise<T>, limitMs = defaultLockWaitMs): Promise<T> {
  const deadlineMs = performance.now() + limitMs;
  for (let pauseMs = shortestPauseMs; ; pauseMs = Math.min(2 * pauseMs, longestPauseMs)) {
    try {
      return await work();
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      if (code === '22023') throw new ConfigurationError(message, { cause: error });
      if (code !== '55P03' || performance.now() >= deadlineMs) throw error;
      await pause(pauseMs);
    }
  }
}

/** Confirms a relay's declaration; false if it has lapsed and the relay must declare again. */
export async function confirmDeclaration(database: Database, relayId: string): Promise<boolean> {
  const [row] = await database.query<{ known: boolean }>(
    'confirm declaration',
    `SELECT ${database.schema}.confirm_declaration($1) AS known`,
    [relayId],
  );
  return row?.known ?? false;
}

/** `problem`: why split routes that no running relay declares were not removed. */
export type Tended = { changes: DefinitionChange[]; problem: string | null };

/** Reconciles an application's definitions: adds and removes them as its running relays declare. */
export async function tendDefinitions(
  database: Database,
  relayId: string,
  actor: string,
): Promise<Tended> {
  const [row] = await database.query<Tended>(
    'tend definitions',
    `SELECT s.changes, s.problem FROM set_config('waybill.actor', $1, true) a
       CROSS JOIN LATERAL ${database.schema}.tend_definitions(CASE WHEN a IS NOT NULL THEN $2::uuid END) s`,
    [actor, relayId],
  );
  await handOverCursors(database);
  return row ?? { changes: [], problem: null };
}
