// Attempts of a page of messages at one destination.

import type { Database } from '../database/connection.js';
import type { Attempt } from './message-detail.js';

/** Without what only operators need: the relay. */
export type AttemptAt = Omit<Attempt, 'destination' | 'relay'>;

/** The newest attempts of each message at the destination, in their order, by message id. */
export async function readAttemptsAt(
  database: Database,
  destination: string,
  messageIds: readonly string[],
  shownAttempts = 20,
): Promise<Map<string, AttemptAt[]>> {
  const { schema } = database;
  const found = new Map<string, AttemptAt[]>();
  if (messageIds.length === 0) return found;
  const sorted = messageIds.toSorted();
  const rows = await database.query<AttemptAt & { messageId: string }>(
    'read attempts',
    // the bounds repeat the look-ups for the planner, which then skips all other days
    `SELECT i.id AS "messageId", a.claim_no AS "claimNo", a.tries, a.state::text AS state, a.claimed_at AS "claimedAt", a.ended_at AS "endedAt",
            a.latency_ms AS "latencyMs", a.error_code AS "errorCode", a.remote_code AS "remoteCode",
            a.error_message AS "errorMessage", a.reference, a.response
       FROM ${schema}.destinations t
       CROSS JOIN unnest($2::uuid[]) i(id)
       CROSS JOIN LATERAL (
         SELECT x.* FROM ${schema}.attempts x
          WHERE x.message_id = i.id AND x.message_id BETWEEN $3 AND $4 AND x.destination_id = t.id
          ORDER BY x.claim_no DESC LIMIT $5) a
      WHERE t.name = $1
      ORDER BY i.id, a.claim_no`,
    [destination, messageIds, sorted[0], sorted.at(-1), shownAttempts],
  );
  for (const { messageId, ...attempt } of rows) {
    const attempts = found.get(messageId);
    if (attempts === undefined) found.set(messageId, [attempt]);
    else attempts.push(attempt);
  }
  return found;
}
