// Orders of lists of endpoints: which endpoints a page reads, and where the next one begins. A page reads a bounded
// number of them in each order.

import { ConfigurationError, shown } from '../../core/errors.js';
import { keysOf, placeOf } from '../../listing/destination-list.js';

/** Orders that one query can read. The order `problems` needs several queries. */
export type QueryOrder = 'newest' | 'name' | 'waiting' | 'dead';
export const endpointOrders = ['newest', 'problems', 'name', 'waiting', 'dead'] as const;

/** Higher than the id of any endpoint. */
export const highestId = 2_147_483_647;

type Entries = {
  order: QueryOrder;
  next: string | undefined;
  /** The conditions on an endpoint `e`. */
  among: readonly string[];
  most: number;
};

/** A query for the next endpoints in an order, at most `most`: their columns and the place of each in the list. */
export function entriesIn(
  schema: string,
  { order, next, among, most }: Entries,
  value: (given: unknown) => string,
): string {
  const where = among.join(' AND ');
  const limit = value(most);
  if (order === 'newest')
    return `SELECT e.*, e.destination_id::text AS place FROM ${schema}.endpoints e
             WHERE ${where} AND e.destination_id < ${value(readId(next))}
             ORDER BY e.destination_id DESC LIMIT ${limit}`;
  const after = placeOf(next);
  const [key, name] = [value(after.key), value(after.name)];
  return `WITH keyed AS MATERIALIZED (${keysOf(schema, order)}),
     places AS (
       (SELECT d.id, k.key, d.name
          FROM keyed k JOIN ${schema}.destinations d ON d.id = k.id JOIN ${schema}.endpoints e ON e.destination_id = d.id
         WHERE (k.key, d.name COLLATE "C") > (${key}::bigint, ${name}::text) AND ${where}
         ORDER BY k.key, d.name COLLATE "C" LIMIT ${limit})
       UNION ALL
       (SELECT d.id, 0::bigint, d.name
          FROM ${schema}.destinations d JOIN ${schema}.endpoints e ON e.destination_id = d.id
         WHERE d.origin = 'database' AND d.id NOT IN (SELECT k.id FROM keyed k) AND ${where}
           AND d.name COLLATE "C" > CASE WHEN ${key}::bigint < 0 THEN '' ELSE ${name}::text END
         ORDER BY d.name COLLATE "C" LIMIT ${limit}))
     SELECT e.*, p.key || '.' || p.name AS place
       FROM places p JOIN ${schema}.endpoints e ON e.destination_id = p.id
      ORDER BY p.key, p.name COLLATE "C" LIMIT ${limit}`;
}

/** The id that a page of the newest endpoints begins before. */
export function readId(next: string | undefined): number {
  const id = next === undefined ? highestId : Number(/^\d{1,10}$/.exec(next)?.[0]);
  if (!(id <= highestId)) throw invalidPlace(next);
  return id;
}

export function invalidPlace(next: string | undefined): ConfigurationError {
  return new ConfigurationError(`next is ${shown(next)}: pass next from the previous page`);
}
