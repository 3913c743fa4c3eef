-- Every claim and how it ended: the attempts, and the claims in flight as 'dispatching'. The fields of the message are
-- those of its row, or of its identity if the message has expired and its topic keeps identities.
CREATE OR REPLACE VIEW attempt_log WITH (security_invoker = true) AS
SELECT a.message_id, t.name AS destination, a.claim_no, a.tries, a.state, a.relay_id, a.claimed_at, a.ended_at,
       a.latency_ms, a.error_code, a.remote_code, a.error_message, a.reference, a.response,
       coalesce(m.namespace, i.namespace) AS namespace, coalesce(m.topic, i.topic) AS topic,
       coalesce(m.tenant_id, i.tenant_id) AS tenant_id, coalesce(m.key, i.key) AS key,
       coalesce(m.sequence, i.sequence) AS sequence, coalesce(m.dedupe_key, i.dedupe_key) AS dedupe_key,
       coalesce(m.aggregate_type, i.aggregate_type) AS aggregate_type,
       coalesce(m.aggregate_id, i.aggregate_id) AS aggregate_id
  FROM (SELECT x.message_id, x.destination_id, x.claim_no, x.tries, x.state::text AS state, x.relay_id, x.claimed_at,
               x.ended_at, x.latency_ms, x.error_code, x.remote_code, x.error_message, x.reference, x.response
          FROM attempts x
        UNION ALL
        SELECT c.message_id, c.destination_id, c.claim_no, c.tries, 'dispatching', c.relay_id, c.claimed_at,
               NULL, NULL, NULL, NULL, NULL, NULL, NULL
          FROM active_claims c) a
  LEFT JOIN destinations t ON t.id = a.destination_id
  LEFT JOIN messages m ON m.id = a.message_id
  LEFT JOIN message_identities i ON i.message_id = a.message_id;
