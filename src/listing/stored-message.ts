// A stored message as a destination receives it, to show the request that was sent for it.

import { ClaimedMessage, column } from '../core/claimed-message.js';
import { readableBytes } from '../core/message.js';
import type { Database } from '../database/connection.js';

/** `bytes`: the size of payload and headers, also of a message that is too large to read. */
export type StoredMessage = { message: ClaimedMessage; bytes: number };

/** From the log, or from the copy that a dead letter keeps; null if there is neither. */
export async function readStoredMessage(
  database: Database,
  id: string,
): Promise<StoredMessage | null> {
  const { schema } = database;
  const columns = `to_json(created_at) #>> '{}' AS "createdAt", namespace, topic, tenant_id AS "tenantId", key,
     sequence::text AS sequence, aggregate_type AS "aggregateType", aggregate_id AS "aggregateId", bytes,
     CASE WHEN bytes <= ${readableBytes} THEN headers::text END AS headers,
     CASE WHEN bytes <= ${readableBytes} THEN payload::text END AS payload`;
  const [row] = await database.query<
    Record<Exclude<keyof typeof column, 'id'>, string | null> & { bytes: number }
  >(
    'read message',
    `(SELECT ${columns} FROM ${schema}.messages WHERE id = $1)
     UNION ALL
     (SELECT ${columns} FROM ${schema}.dead_letters WHERE message_id = $1 AND payload IS NOT NULL)
     LIMIT 1`,
    [id],
  );
  if (row === undefined) return null;
  const values = Object.keys(column).map((name) =>
    name === 'id' ? id : (row[name as Exclude<keyof typeof column, 'id'>] ?? null),
  );
  return { message: new ClaimedMessage(values), bytes: row.bytes };
}
