// Actions on one message: which operator retried, replayed, discarded or restored it, after which claim. The audit records
// the filter of an action, not every message that it changed. So an action belongs to a message if its filter matches it
// and it happened between a claim's end and what the destination did next.

import type { Database } from '../../database/connection.js';

export type MessageAction = {
  destination: string;
  /** The claim that it came after; for a discard, the claim that records it. */
  claimNo: number;
  at: Date;
  actor: string;
  action: string;
};

/** The newest actions in the time after a claim that are searched: the cost is bounded, however many there are. */
const searched = 5000;

export async function readMessageActions(
  database: Database,
  messageId: string,
): Promise<MessageAction[]> {
  const { schema } = database;
  return database.query<MessageAction>(
    'read actions on message',
    `WITH message AS MATERIALIZED (
       SELECT x.* FROM (
         (SELECT m.topic, m.namespace, m.tenant_id, m.key, m.created_at FROM ${schema}.messages m WHERE m.id = $1)
         UNION ALL
         (SELECT l.topic, l.namespace, l.tenant_id, l.key, l.created_at FROM ${schema}.dead_letters l WHERE l.message_id = $1)) x
        LIMIT 1),
     claims AS MATERIALIZED (
       SELECT a.destination_id, t.name, a.claim_no, a.state, a.relay_id, a.ended_at, a.error_code,
              -- a discard has no code of the other side: its letter had that of the last failed try
              ${schema}.cause_of(a.error_code, CASE WHEN a.state <> 'discarded' THEN a.remote_code ELSE
                (SELECT f.remote_code FROM ${schema}.attempts f
                  WHERE f.message_id = $1 AND f.destination_id = a.destination_id AND f.claim_no < a.claim_no AND f.state = 'failed'
                  ORDER BY f.claim_no DESC LIMIT 1) END) AS cause,
              lead(coalesce(a.claimed_at, a.ended_at)) OVER (PARTITION BY a.destination_id ORDER BY a.claim_no) AS next_at
         FROM ${schema}.attempts a JOIN ${schema}.destinations t ON t.id = a.destination_id
        WHERE a.message_id = $1),
     moments AS (
       -- A discard records its attempt, then its action. A discard with a relay_id is the expiry of an endpoint's
       -- message, not an operator's.
       SELECT c.*, ARRAY['discard_dead_letters', 'discard_deliveries', 'cancel'] AS actions, c.ended_at + interval '1 minute' AS until
         FROM claims c WHERE c.state = 'discarded' AND c.relay_id IS NULL
        UNION ALL
       SELECT c.*, CASE c.state WHEN 'failed' THEN ARRAY['retry_dead_letters', 'start_replay'] WHEN 'retryable' THEN ARRAY['retry_now']
                                WHEN 'discarded' THEN ARRAY['restore_dead_letters', 'start_replay'] WHEN 'dispatched' THEN ARRAY['start_replay'] ELSE '{}' END,
              coalesce(c.next_at, 'infinity')
         FROM claims c
        WHERE c.next_at IS NOT NULL
           OR EXISTS (SELECT FROM ${schema}.deliveries d WHERE d.message_id = $1 AND d.destination_id = c.destination_id)
           OR EXISTS (SELECT FROM ${schema}.leases l WHERE l.destination_id = c.destination_id AND $1 = ANY (l.message_ids))
           OR (c.state = 'discarded'
               AND EXISTS (SELECT FROM ${schema}.dead_letters l WHERE l.message_id = $1 AND l.destination_id = c.destination_id)))
     SELECT c.name AS destination, c.claim_no AS "claimNo", f.at, f.actor, f.action
       FROM moments c CROSS JOIN message m CROSS JOIN LATERAL (
         SELECT x.at, x.actor, x.action
           FROM (SELECT o.at, o.actor, o.action, o.subject AS s FROM ${schema}.operator_actions o
                  WHERE o.at >= c.ended_at AND o.at <= c.until ORDER BY o.at DESC LIMIT ${searched}) x
          WHERE x.action = ANY (c.actions)
            AND (NOT x.s ? 'ids' OR x.s -> 'ids' ? $1::text)
            AND coalesce(x.s ->> 'messageId', $1::text) = $1::text
            AND coalesce(x.s ->> 'destination', c.name) = c.name
            AND (NOT x.s ? 'destinations' OR x.s -> 'destinations' ? c.name)
            AND (x.s ->> 'topic' IS NULL OR x.s ->> 'topic' IN (m.topic, '*')
                 OR (x.s ->> 'topic' LIKE '%.*' AND starts_with(m.topic, left(x.s ->> 'topic', -1))))
            AND (x.s ->> 'namespace' IS NULL OR x.s ->> 'namespace' = m.namespace)
            AND (x.s ->> 'tenantId' IS NULL OR x.s ->> 'tenantId' = m.tenant_id)
            AND (x.s ->> 'key' IS NULL OR x.s ->> 'key' = m.key)
            AND (x.s ->> 'errorCode' IS NULL OR x.s ->> 'errorCode' = c.error_code)
            AND (NOT x.s ? 'causes' OR x.s -> 'causes' ? c.cause)
            AND (x.s ->> 'deadBefore' IS NULL OR (x.s ->> 'deadBefore')::timestamptz > c.ended_at OR c.state = 'discarded')
            AND (x.s ->> 'since' IS NULL OR (x.s ->> 'since')::timestamptz <= m.created_at)
            AND (x.s ->> 'until' IS NULL OR (x.s ->> 'until')::timestamptz > m.created_at)
            -- an undo of a job belongs to what was discarded while that job ran
            AND NOT EXISTS (SELECT FROM ${schema}.jobs j WHERE j.id = (x.s ->> 'job')::uuid
                               AND (j.started_at > c.ended_at OR j.ended_at < c.ended_at))
          -- the first one that matches changed it; later ones found it changed
          ORDER BY x.at LIMIT 1) f
      ORDER BY f.at, c.name LIMIT 1000`,
    [messageId],
  );
}
