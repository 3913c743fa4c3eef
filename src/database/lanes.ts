// Keys that wait behind a dead letter, as an operator sees and opens them.

import { ConfigurationError, shown } from '../errors.js';
import type { Database } from './connection.js';
import { changeDeadLetters } from './dead-letters.js';
import type { DeadLetterAction } from './dead-letters.js';

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

export type BlockedLaneFilter = {
  destination?: string;
  namespace?: string;
  tenantId?: string;
  key?: string;
};

export type BlockedLanePage = { lanes: BlockedLane[]; next: string | null };

/** In the order of the dead letters' ids; one may block its key at several destinations. */
export async function listBlockedLanes(
  database: Database,
  filter: BlockedLaneFilter,
  page: { limit: number; next?: string },
): Promise<BlockedLanePage> {
  const { schema } = database;
  const { messageId, destinationId } = readPlace(page.next);
  const rows = await database.query<BlockedLane & { destinationId: number }>(
    'list blocked keys',
    `SELECT l.destination_id AS "destinationId", t.name AS destination, l.namespace, nullif(s.tenant_id, '') AS "tenantId", s.key,
            l.blocked_by AS "messageId", d.topic, d.tries, d.error_code AS "errorCode", left(d.error_message, 300) AS "errorMessage",
            d.dead_at AS "deadAt",
            (SELECT count(*)::int FROM (
               SELECT FROM ${schema}.deliveries x WHERE x.destination_id = l.destination_id AND x.stream_id = l.stream_id LIMIT 1000) y) AS waiting
       FROM ${schema}.lanes l
       JOIN ${schema}.destinations t ON t.id = l.destination_id
       JOIN ${schema}.streams s ON s.id = l.stream_id
       LEFT JOIN ${schema}.dead_letters d ON d.message_id = l.blocked_by AND d.destination_id = l.destination_id
      WHERE l.blocked_by IS NOT NULL AND (l.blocked_by, l.destination_id) > ($1::uuid, $2::smallint) AND t.name = coalesce($3, t.name)
        AND ($5::text IS NULL OR s.namespace = $5) AND ($6::text IS NULL OR s.tenant_id = $6) AND ($7::text IS NULL OR s.key = $7)
      ORDER BY l.blocked_by, l.destination_id LIMIT $4`,
    [
      messageId,
      destinationId,
      filter.destination ?? null,
      page.limit,
      filter.namespace ?? null,
      filter.tenantId ?? null,
      filter.key ?? null,
    ],
  );
  const last = rows.length < page.limit ? undefined : rows.at(-1);
  return {
    lanes: rows.map(({ destinationId: _destinationId, ...lane }) => lane),
    next: last === undefined ? null : `${last.messageId}.${last.destinationId}`,
  };
}

function readPlace(next: string | undefined): { messageId: string; destinationId: number } {
  if (next === undefined)
    return { messageId: '00000000-0000-0000-0000-000000000000', destinationId: 0 };
  const place = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.(\d{1,4})$/i.exec(next);
  if (place === null)
    throw new ConfigurationError(`next is ${shown(next)}: give what the page before gave`);
  return { messageId: place[1] ?? '', destinationId: Number(place[2]) };
}

/** Retries, skips or discards the dead letters that block these keys. Answers how many messages or keys that was. */
export async function openLanes(
  database: Database,
  action: DeadLetterAction,
  filter: BlockedLaneFilter,
  actor: string,
): Promise<number> {
  const limit = 500;
  let total = 0;
  for (let next: string | null = ''; next !== null;) {
    const page: BlockedLanePage = await listBlockedLanes(database, filter, {
      limit,
      ...(next !== '' && { next }),
    });
    for (const [destination, lanes] of groupByDestination(page.lanes))
      total += await changeDeadLetters(
        database,
        action,
        { destination, ids: lanes.map(({ messageId }) => messageId) },
        actor,
      );
    ({ next } = page);
  }
  return total;
}

function groupByDestination(lanes: readonly BlockedLane[]): Map<string, BlockedLane[]> {
  const groups = new Map<string, BlockedLane[]>();
  for (const lane of lanes)
    groups.set(lane.destination, [...(groups.get(lane.destination) ?? []), lane]);
  return groups;
}
