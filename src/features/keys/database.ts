// Blocked keys: lists keys that wait behind a dead letter, and the dead letters that block them.

import { ConfigurationError, shown } from '../../core/errors.js';
import type { Database } from '../../database/connection.js';

export type BlockedKey = {
  destination: string;
  namespace: string;
  tenantId: string | null;
  key: string;
  /** The dead letter that blocks the key. */
  messageId: string;
  topic: string | null;
  tries: number | null;
  errorCode: string | null;
  errorMessage: string | null;
  deadAt: Date | null;
  /** Messages that wait behind it; counting stops at 1,000. */
  waiting: number;
};

export type BlockedKeyFilter = {
  destination?: string;
  namespace?: string;
  tenantId?: string;
  key?: string;
};

export type BlockedKeyPage = { keys: BlockedKey[]; next: string | null };

/** In the order of the dead letters' ids; one dead letter may block its key at several destinations. */
export async function listBlockedKeys(
  database: Database,
  filter: BlockedKeyFilter,
  page: { limit: number; next?: string },
): Promise<BlockedKeyPage> {
  const { schema } = database;
  const { messageId, destinationId } = readPlace(page.next);
  const rows = await database.query<BlockedKey & { destinationId: number }>(
    'list blocked keys',
    `SELECT l.destination_id AS "destinationId", t.name AS destination, l.namespace, nullif(s.tenant_id, '') AS "tenantId", s.key,
            l.blocked_by AS "messageId", d.topic, d.tries, d.error_code AS "errorCode", left(d.error_message, 300) AS "errorMessage",
            d.dead_at AS "deadAt",
            (SELECT count(*)::int FROM (
               SELECT FROM ${schema}.deliveries x WHERE x.destination_id = l.destination_id AND x.key_id = l.key_id LIMIT 1000) y) AS waiting
       FROM ${schema}.lanes l
       JOIN ${schema}.destinations t ON t.id = l.destination_id
       JOIN ${schema}.keys s ON s.id = l.key_id
       LEFT JOIN ${schema}.dead_letters d ON d.message_id = l.blocked_by AND d.destination_id = l.destination_id
      WHERE l.blocked_by IS NOT NULL AND (l.blocked_by, l.destination_id) > ($1::uuid, $2::int) AND t.name = coalesce($3, t.name)
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
    keys: rows.map(({ destinationId: _destinationId, ...key }) => key),
    next: last === undefined ? null : `${last.messageId}.${last.destinationId}`,
  };
}

/** Of destinations, whose ids are integers of PostgreSQL. */
const largestId = 2_147_483_647;

function readPlace(next: string | undefined): { messageId: string; destinationId: number } {
  if (next === undefined)
    return { messageId: '00000000-0000-0000-0000-000000000000', destinationId: 0 };
  const place = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.(\d{1,10})$/i.exec(next);
  if (place === null || Number(place[2]) > largestId)
    throw new ConfigurationError(`next is ${shown(next)}: pass next from the previous page`);
  return { messageId: place[1] ?? '', destinationId: Number(place[2]) };
}

/** The dead letters that block these keys, by destination. */
export async function blockingLetters(
  database: Database,
  filter: BlockedKeyFilter,
): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  for (let next: string | null = ''; next !== null;) {
    const page: BlockedKeyPage = await listBlockedKeys(database, filter, {
      limit: 500,
      ...(next !== '' && { next }),
    });
    for (const { destination, messageId } of page.keys) {
      const ids = found.get(destination);
      if (ids === undefined) found.set(destination, [messageId]);
      else ids.push(messageId);
    }
    ({ next } = page);
  }
  return found;
}
