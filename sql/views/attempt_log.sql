-- Every claim and how it ended: the attempts, and the claims in flight as 'dispatching'.
CREATE OR REPLACE VIEW attempt_log WITH (security_invoker = true) AS
SELECT a.message_id, t.name AS destination, a.claim_no, a.tries, a.state::text AS state, a.relay_id,
       a.claimed_at, a.ended_at, a.latency_ms, a.error_code, a.remote_code, a.error_message, a.reference, a.response
  FROM attempts a
  LEFT JOIN destinations t ON t.id = a.destination_id
UNION ALL
SELECT c.message_id, t.name, c.claim_no, c.tries, 'dispatching', c.relay_id,
       c.claimed_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM active_claims c
  LEFT JOIN destinations t ON t.id = c.destination_id;
