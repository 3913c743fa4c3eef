// List of destinations: pages through them by urgency, name or size, at a cost that does not grow with their number.
// Destinations with problems and with deliveries are found by indexes, and only up to a bound of each kind. The others
// follow by name.

import { destinationProblems } from '../core/destination-state.js';
import type { DestinationProblem } from '../core/destination-state.js';
import { ConfigurationError, shown } from '../core/errors.js';
import type { Database } from '../database/connection.js';
import { readDestinations } from './reports.js';
import type { DestinationReport } from './reports.js';

export const destinationOrders = ['problems', 'name', 'waiting', 'dead'] as const;

export type DestinationFilter = {
  /** Text in the name, in upper or lower case. */
  search?: string;
  problem?: DestinationProblem;
  /** `file`: destinations of configurations and of SQL. `database`: endpoints. */
  origin?: 'file' | 'database';
};

export type DestinationPage = { destinations: DestinationReport[]; next: string | null };

type PageOptions = { order: (typeof destinationOrders)[number]; limit: number; next?: string };

/** The most destinations of each problem that are found. */
const foundAtMost = 2000;
/** The most counts of the statistics, and deliveries or dead letters of an order, that are read. */
const readAtMost = 20_000;

export async function listDestinations(
  database: Database,
  { search, problem, origin }: DestinationFilter,
  { order, limit, next }: PageOptions,
): Promise<DestinationPage> {
  const { schema } = database;
  const after = placeOf(next);
  const values: unknown[] = [];
  const value = (given: unknown): string => `$${values.push(given)}`;
  const conditions = [
    ...(origin === undefined ? [] : [`t.origin = ${value(origin)}`]),
    ...(problem === undefined
      ? []
      : [`t.id IN (SELECT f.id FROM (${problemQueries(schema)[problem]}) f)`]),
  ].map((condition) => ` AND ${condition}`);
  const where = conditions.join('');
  const [key, name, most] = [value(after.key), value(after.name), value(limit + 1)];
  // one pass over the table: in the order of the names, each row would be fetched by itself
  const searched =
    search === undefined
      ? ''
      : `, searched AS MATERIALIZED (
           SELECT d.id, d.name, d.origin FROM ${schema}.destinations d
            WHERE strpos(lower(d.name), lower(${value(search)}::text)) > 0)`;
  const among = search === undefined ? `${schema}.destinations` : 'searched';
  const rest = value(order === 'problems' ? destinationProblems.length : 0);
  const rows = await database.query<{ name: string; key: number }>(
    'list destinations',
    `WITH keyed AS MATERIALIZED (${keysOf(schema, order)})${searched}
     SELECT x.name, x.key::float8 AS key
       FROM ((SELECT t.name, k.key FROM keyed k JOIN ${among} t ON t.id = k.id
               WHERE (k.key, t.name) > (${key}::bigint, ${name}::text)${where}
               ORDER BY k.key, t.name LIMIT ${most})
             UNION ALL
             (SELECT t.name, ${rest}::bigint FROM ${among} t
               WHERE t.name > CASE WHEN ${key}::bigint < ${rest}::bigint THEN '' ELSE ${name}::text END
                 AND t.id NOT IN (SELECT k.id FROM keyed k)${where}
               ORDER BY t.name LIMIT ${most})) x
      ORDER BY x.key, x.name LIMIT ${most}`,
    values,
  );
  const listed = rows.slice(0, limit);
  const reports = await readDestinations(
    database,
    listed.map((row) => row.name),
  );
  const byName = new Map(reports.map((report) => [report.name, report]));
  const last = listed.at(-1);
  return {
    // one that was removed since is left out
    destinations: listed.flatMap((row) => byName.get(row.name) ?? []),
    next: rows.length > limit && last !== undefined ? `${last.key}.${last.name}` : null,
  };
}

/** The destinations that an order places by a number, the lowest first. All others come after them, by name. */
export function keysOf(schema: string, order: PageOptions['order']): string {
  const counted = (rows: string) =>
    `SELECT x.destination_id AS id, -count(*) AS key FROM (${rows} LIMIT ${readAtMost}) x GROUP BY x.destination_id`;
  if (order === 'name') return 'SELECT NULL::int AS id, NULL::bigint AS key WHERE false';
  if (order === 'waiting')
    return counted(
      `SELECT d.destination_id FROM ${schema}.deliveries d ORDER BY d.message_id, d.destination_id`,
    );
  if (order === 'dead')
    return counted(
      `SELECT l.destination_id FROM ${schema}.dead_letters l ORDER BY l.dead_at DESC, l.message_id DESC`,
    );
  const queries = problemQueries(schema);
  const ranked = destinationProblems.map(
    (problem, rank) => `SELECT p.id, ${rank} AS rank FROM (${queries[problem]}) p`,
  );
  // a paused destination is only paused; one with several other problems counts with the most urgent
  const paused = destinationProblems.indexOf('paused');
  return `SELECT f.id, (CASE WHEN bool_or(f.rank = ${paused}) THEN ${paused} ELSE min(f.rank) END)::bigint AS key
            FROM (${ranked.join(' UNION ALL ')}) f GROUP BY f.id`;
}

/** The destinations with each problem, at most 2,000. The page says the same of each in its `destinationState`. */
function problemQueries(schema: string): Record<DestinationProblem, string> {
  return {
    breaker: `
      SELECT t.id FROM ${schema}.relays r CROSS JOIN LATERAL jsonb_object_keys(r.breakers) b(name)
        JOIN ${schema}.destinations t ON t.name = b.name
       WHERE r.heartbeat_at > clock_timestamp() - interval '1 minute' LIMIT ${foundAtMost}`,
    // The first condition is that of the index destinations_at_rest, here and in `paused`. Keyed and unkeyed deliveries
    // have separate indexes.
    unconfigured: `
      SELECT t.id FROM ${schema}.destinations t
       WHERE (t.paused_at IS NOT NULL OR NOT t.configured) AND NOT t.configured
         AND (EXISTS (SELECT FROM ${schema}.deliveries d WHERE d.destination_id = t.id AND d.key_id IS NULL)
              OR EXISTS (SELECT FROM ${schema}.deliveries d WHERE d.destination_id = t.id AND d.key_id IS NOT NULL))
       LIMIT ${foundAtMost}`,
    failing: `
      SELECT x.destination_id AS id
        FROM (SELECT s.destination_id, s.delivered, s.retried + s.died AS failed FROM ${schema}.statistics s
               WHERE s.slice >= date_bin('10 seconds', statement_timestamp(), 'epoch') - interval '5 minutes'
                 AND s.slice < date_bin('10 seconds', statement_timestamp(), 'epoch')
               ORDER BY s.slice DESC LIMIT ${readAtMost}) x
       GROUP BY x.destination_id HAVING sum(x.failed) > sum(x.delivered) LIMIT ${foundAtMost}`,
    // from one destination with dead letters to the next, by their index
    dead: `
      WITH RECURSIVE step AS (
        SELECT (SELECT l.destination_id FROM ${schema}.dead_letters l ORDER BY l.destination_id LIMIT 1) AS id, 1 AS place
        UNION ALL
        SELECT (SELECT l.destination_id FROM ${schema}.dead_letters l WHERE l.destination_id > s.id
                 ORDER BY l.destination_id LIMIT 1), s.place + 1
          FROM step s WHERE s.id IS NOT NULL AND s.place < ${foundAtMost})
      SELECT s.id FROM step s WHERE s.id IS NOT NULL`,
    paused: `
      SELECT t.id FROM ${schema}.destinations t
       WHERE (t.paused_at IS NOT NULL OR NOT t.configured) AND t.paused_at IS NOT NULL LIMIT ${foundAtMost}`,
  };
}

/** Where a page begins: after this number and name. */
export function placeOf(next: string | undefined): { key: number; name: string } {
  if (next === undefined) return { key: Number.MIN_SAFE_INTEGER, name: '' };
  const [, key, name] = /^(-?\d{1,6})\.([A-Za-z0-9_][A-Za-z0-9_.-]{0,62})$/.exec(next) ?? [];
  if (key === undefined || name === undefined)
    throw new ConfigurationError(`next is ${shown(next)}: pass next from the previous page`);
  return { key: Number(key), name };
}
