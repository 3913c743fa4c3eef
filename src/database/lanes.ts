// Keys that wait behind a dead letter, as an operator sees them.

import type { Database } from './connection.js';

export type BlockedLane = {
  destination: string;
  namespace: string;
  tenantId: string | null;
  key: string;
  /** The dead letter that it waits behind. */
  messageId: string;
  topic: string | null;
  tries: number | null;
  errorCode: string | null;
  errorMessage: string | null;
  deadAt: Date | null;
  /** Messages that wait behind it, at most 1,000 of them counted. */
  waiting: number;
};

export type BlockedLanePage = { lanes: BlockedLane[]; next: string | null };

/** In the order of the dead letters' ids. */
export async function listBlockedLanes(
  database: Database,
  filter: { destination?: string },
  page: { limit: number; next?: string },
): Promise<BlockedLanePage> {
  const { schema } = database;
  const lanes = await database.query<BlockedLane>(
    'list blocked keys',
    `SELECT t.name AS destination, l.namespace, nullif(s.tenant_id, '') AS "tenantId", s.key, l.blocked_by AS "messageId",
            d.topic, d.tries, d.error_code AS "errorCode", left(d.error_message, 300) AS "errorMessage", d.dead_at AS "deadAt",
            (SELECT count(*)::int FROM (
               SELECT FROM ${schema}.deliveries x WHERE x.destination_id = l.destination_id AND x.stream_id = l.stream_id LIMIT 1000) y) AS waiting
       FROM ${schema}.lanes l
       JOIN ${schema}.destinations t ON t.id = l.destination_id
       JOIN ${schema}.streams s ON s.id = l.stream_id
       LEFT JOIN ${schema}.dead_letters d ON d.message_id = l.blocked_by AND d.destination_id = l.destination_id
      WHERE l.blocked_by IS NOT NULL AND l.blocked_by > $1 AND t.name = coalesce($2, t.name)
      ORDER BY l.blocked_by, l.destination_id LIMIT $3`,
    [page.next ?? '00000000-0000-0000-0000-000000000000', filter.destination ?? null, page.limit],
  );
  return { lanes, next: lanes.length < page.limit ? null : (lanes.at(-1)?.messageId ?? null) };
}
