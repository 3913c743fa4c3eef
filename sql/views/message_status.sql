-- The status of a message at each destination: pending (retrying: pending after a failed try), processing, delivered,
-- dead or discarded. A message that no route wanted is unrouted. The last error of a dead letter is its own, because it
-- may have died without a failed attempt; else it is that of the last failed attempt.
CREATE OR REPLACE VIEW message_status WITH (security_invoker = true) AS
WITH place AS (
  SELECT d.message_id, d.destination_id, 'pending' AS status, d.tries, d.claim_no, NULL::uuid AS locked_by,
         NULL::timestamptz AS locked_until, d.available_at AS next_try_at, NULL::timestamptz AS changed_at,
         NULL::text AS error_code, NULL::text AS error_message
    FROM deliveries d
  UNION ALL
  SELECT c.message_id, c.destination_id, 'processing', c.tries, c.claim_no, c.relay_id, c.expires_at, NULL,
         c.claimed_at, NULL, NULL
    FROM active_claims c
  UNION ALL
  SELECT d.message_id, d.destination_id, 'dead', d.tries, d.claim_no, NULL, NULL, NULL, d.dead_at, d.error_code,
         d.error_message
    FROM dead_letters d
  UNION ALL
  SELECT a.message_id, a.destination_id, CASE a.state WHEN 'dispatched' THEN 'delivered' ELSE 'discarded' END,
         a.tries, a.claim_no, NULL, NULL, NULL, a.ended_at, NULL, NULL
    FROM attempts a
   WHERE (a.state = 'dispatched'
          AND NOT EXISTS (
                SELECT FROM brought_back r
                 WHERE r.destination_id = a.destination_id
                   AND r.before_id > a.message_id))
      -- a discarded message, or one before the position of a replay, may have been sent again since
      OR (a.state IN ('dispatched', 'discarded')
          AND NOT EXISTS (
                SELECT FROM attempts n
                 WHERE n.message_id = a.message_id
                   AND n.destination_id = a.destination_id
                   AND n.claim_no > a.claim_no)
          AND NOT EXISTS (
                SELECT FROM deliveries d
                 WHERE d.message_id = a.message_id
                   AND d.destination_id = a.destination_id)
          AND NOT EXISTS (
                SELECT FROM dead_letters d
                 WHERE d.message_id = a.message_id
                   AND d.destination_id = a.destination_id)
          AND NOT EXISTS (
                SELECT FROM active_claims c
                 WHERE c.message_id = a.message_id
                   AND c.destination_id = a.destination_id
                   AND c.claim_no > a.claim_no))
  UNION ALL
  SELECT u.message_id, NULL, 'unrouted', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL
    FROM unrouted_messages u)
SELECT p.message_id, t.name AS destination, p.status, p.status = 'pending' AND p.tries > 0 AS retrying,
       m.namespace, m.topic, m.tenant_id, m.key, m.sequence, m.dedupe_key, m.aggregate_type, m.aggregate_id,
       p.tries, p.claim_no, p.next_try_at, p.locked_by, p.locked_until,
       CASE WHEN p.status = 'dead' THEN p.error_code ELSE e.error_code END AS last_error_code,
       CASE WHEN p.status = 'dead' THEN p.error_message ELSE e.error_message END AS last_error,
       id_time(p.message_id) AS created_at, coalesce(p.changed_at, e.ended_at, id_time(p.message_id)) AS changed_at
  FROM place p
  LEFT JOIN destinations t ON t.id = p.destination_id
  LEFT JOIN messages m ON m.id = p.message_id
  LEFT JOIN LATERAL (
         SELECT a.error_code, a.error_message, a.ended_at
           FROM attempts a
          WHERE a.message_id = p.message_id
            AND a.destination_id = p.destination_id
            -- an attempt that was released with a code has paused its destination
            AND (a.state IN ('retryable', 'failed', 'zombie_requeue')
                 OR (a.state = 'released' AND a.error_code IS NOT NULL))
          ORDER BY a.claim_no DESC
          LIMIT 1) e ON true;
