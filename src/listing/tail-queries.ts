// The two queries of a tail. Each reads a bounded part of the log, filters it, and returns the newest events and
// their number. A row without a message carries only the counts.

import { topicFits } from './message-ranges.js';
import type { TailEvent } from './tail-events.js';

/** The most entries of messages, and of attempts, that one look reads. */
export const walkedAtMost = 100_000;

export type FoundRow = Omit<TailEvent, 'messageId'> & {
  messageId: string | null;
  source: 'messages' | 'attempts';
  matched: number;
  walked: number;
};

/** Attempts by their primary key, in parallel arrays. */
export type Keys = { messageIds: string[]; destinationIds: number[]; claimNos: number[] };

/** The first row has the keys of all matching attempts that may be read again. */
export type FoundAttempts = FoundRow & Partial<Keys>;

/**
 * The messages of the window, newest transactions first: those of transactions that began after the old snapshot, or
 * were running in it. The bounds of the latter are for the planner: it cannot see the list, and where few transactions
 * wrote many messages each, it would read the whole log for it.
 */
function walkOf(outbox: string): string {
  const columns =
    'w.id, w.transaction_id, w.created_at, w.sequence, w.namespace, w.topic, w.tenant_id, w.key, w.aggregate_type, w.aggregate_id';
  return `
    SELECT x.* FROM (
      (SELECT ${columns} FROM ${outbox}.messages w
        WHERE w.transaction_id >= pg_snapshot_xmax($1::pg_snapshot) AND w.transaction_id < pg_snapshot_xmax($2::pg_snapshot)
        ORDER BY w.transaction_id DESC LIMIT ${walkedAtMost + 1})
      UNION ALL
      (SELECT ${columns} FROM ${outbox}.messages w
        WHERE w.transaction_id >= pg_snapshot_xmin($1::pg_snapshot) AND w.transaction_id < pg_snapshot_xmax($1::pg_snapshot)
          AND w.transaction_id = ANY (ARRAY (SELECT r FROM pg_snapshot_xip($1::pg_snapshot) r WHERE pg_visible_in_snapshot(r, $2::pg_snapshot)))
        LIMIT ${walkedAtMost + 1})) x
     WHERE pg_visible_in_snapshot(x.transaction_id, $2::pg_snapshot)`;
}

const messageFilter = (m: string) => `
  ($4::text IS NULL OR ${topicFits(`${m}.topic`, '$4')})
  AND ($5::text IS NULL OR ${m}.namespace = $5) AND ($6::text IS NULL OR ${m}.tenant_id = $6) AND ($7::text IS NULL OR ${m}.key = $7)
  AND ($8::text IS NULL OR ${m}.aggregate_type = $8) AND ($9::text IS NULL OR ${m}.aggregate_id = $9)`;

/** With a destination, only messages with a pending, leased, dead or tried delivery there. */
export function messagesQuery(outbox: string): string {
  const destination = `(SELECT t.id FROM ${outbox}.destinations t WHERE t.name = $10)`;
  return `
    WITH w AS MATERIALIZED (${walkOf(outbox)}),
    f AS MATERIALIZED (
      SELECT w.* FROM w
       WHERE ($11::timestamptz IS NULL OR w.created_at >= $11) AND ${messageFilter('w')}
         AND ($10::text IS NULL
           OR (SELECT 1 FROM ${outbox}.deliveries d WHERE d.message_id = w.id AND d.destination_id = ${destination} LIMIT 1) IS NOT NULL
           OR (SELECT 1 FROM ${outbox}.attempts a WHERE a.message_id = w.id AND a.destination_id = ${destination} LIMIT 1) IS NOT NULL
           OR (SELECT 1 FROM ${outbox}.dead_letters d WHERE d.message_id = w.id AND d.destination_id = ${destination} LIMIT 1) IS NOT NULL
           OR (SELECT 1 FROM ${outbox}.leases l WHERE l.destination_id = ${destination} AND w.id = ANY (l.message_ids) LIMIT 1) IS NOT NULL))
    SELECT 'messages' AS source, n.matched, n.walked, 'enqueued' AS event, e.created_at AS at, e.id AS "messageId", NULL AS destination,
           e.namespace, e.topic, e.tenant_id AS "tenantId", e.key, e.sequence::text AS sequence, NULL AS "claimNo", NULL AS tries,
           NULL AS "latencyMs", NULL AS "errorCode", NULL AS "remoteCode", NULL AS error, NULL AS reference
      FROM (SELECT (SELECT count(*)::int FROM f) AS matched, (SELECT count(*)::int FROM w) AS walked) n
      LEFT JOIN (SELECT * FROM f ORDER BY f.created_at DESC, f.id DESC LIMIT $3) e ON true`;
}

/**
 * Attempts that ended at or after $1 and are not among the keys $14 to $16. Matching attempts that ended at or after
 * $2 are returned as keys, new or not.
 */
export function attemptsQuery(outbox: string): string {
  return `
    WITH w AS MATERIALIZED (
      SELECT a.* FROM ${outbox}.attempts a
       WHERE a.ended_at >= $1::timestamptz
       ORDER BY a.ended_at DESC LIMIT ${walkedAtMost + 1}),
    f AS MATERIALIZED (
      SELECT w.*, t.name AS destination, m.namespace, m.topic, m.tenant_id, m.key, m.sequence,
             CASE w.state WHEN 'dispatched' THEN 'delivered' WHEN 'retryable' THEN 'retrying' WHEN 'failed' THEN 'dead'
                          ELSE w.state::text END AS event,
             (w.message_id, w.destination_id, w.claim_no) IN (
               SELECT k.message_id, k.destination_id, k.claim_no
                 FROM unnest($14::uuid[], $15::int[], $16::int[]) k(message_id, destination_id, claim_no)) AS counted
        FROM w JOIN ${outbox}.destinations t ON t.id = w.destination_id
        -- the message may be missing: retention removed it, or a cursor parked one that is gone
        LEFT JOIN LATERAL (SELECT x.* FROM ${outbox}.messages x WHERE x.id = w.message_id OFFSET 0) m ON true
       WHERE ($10::text IS NULL OR t.name = $10) AND ($11::timestamptz IS NULL OR w.ended_at >= $11)
         AND ($12::text IS NULL OR w.error_code = $12) AND ${messageFilter('m')}),
    e AS MATERIALIZED (SELECT * FROM f WHERE $13::text IS NULL OR f.event = $13),
    kept AS MATERIALIZED (
      SELECT coalesce(array_agg(e.message_id), '{}') AS message_ids, coalesce(array_agg(e.destination_id), '{}') AS destination_ids,
             coalesce(array_agg(e.claim_no), '{}') AS claim_nos
        FROM e WHERE e.ended_at >= $2::timestamptz)
    SELECT 'attempts' AS source, n.matched, n.walked, s.event, s.ended_at AS at, s.message_id AS "messageId", s.destination,
           s.namespace, s.topic, s.tenant_id AS "tenantId", s.key, s.sequence::text AS sequence, s.claim_no AS "claimNo", s.tries,
           s.latency_ms AS "latencyMs", s.error_code AS "errorCode", s.remote_code AS "remoteCode", left(s.error_message, 300) AS error,
           s.reference, CASE WHEN s.place IS NULL OR s.place = 1 THEN kept.message_ids END AS "messageIds",
           CASE WHEN s.place IS NULL OR s.place = 1 THEN kept.destination_ids END AS "destinationIds",
           CASE WHEN s.place IS NULL OR s.place = 1 THEN kept.claim_nos END AS "claimNos"
      FROM (SELECT (SELECT count(*)::int FROM e WHERE NOT e.counted) AS matched, (SELECT count(*)::int FROM w) AS walked) n
      CROSS JOIN kept
      LEFT JOIN (SELECT e.*, row_number() OVER (ORDER BY e.ended_at DESC, e.message_id DESC, e.claim_no DESC) AS place
                   FROM e WHERE NOT e.counted ORDER BY place LIMIT $3) s ON true
     ORDER BY s.place`;
}
