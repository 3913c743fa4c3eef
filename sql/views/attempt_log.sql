-- Every claim and how it ended, those under way included: the archive plus the leases' 'dispatching'.
CREATE OR REPLACE VIEW attempt_log WITH (security_invoker = true) AS
SELECT a.message_id, t.name AS destination, a.claim_no, a.tries, a.state::text AS state, a.relay_id,
       a.claimed_at, a.ended_at, a.latency_ms, a.error_code, a.remote_code, a.error_message, a.reference, a.response
  FROM attempts a JOIN destinations t ON t.id = a.destination_id
UNION ALL
SELECT u.message_id, t.name, u.claim_no, u.tries, 'dispatching', l.relay_id, l.claimed_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM leases l JOIN destinations t ON t.id = l.destination_id,
       unnest(l.message_ids, l.claim_nos, l.tries) u(message_id, claim_no, tries)
 WHERE NOT EXISTS (SELECT FROM attempts a WHERE a.message_id = u.message_id
                      AND a.destination_id = l.destination_id AND a.claim_no = u.claim_no);
