-- Claims in flight: what relays and workers hold and have not ended, one row for each message of each lease. A lease
-- holds messages of many tenants, and a policy cannot hide a part of a row. So this view runs with the owner's rights,
-- and shows the messages of their tenant to callers that may not read leases. security_barrier: functions of the caller
-- see no more.
CREATE OR REPLACE VIEW active_claims WITH (security_barrier = true) AS
SELECT u.message_id, l.destination_id, u.claim_no, u.tries, l.id AS lease_id, l.relay_id, l.claimed_at, l.expires_at
  FROM leases l, unnest(l.message_ids, l.claim_nos, l.tries) u(message_id, claim_no, tries)
 WHERE NOT EXISTS (
         SELECT FROM attempts a
          WHERE a.message_id = u.message_id
            AND a.destination_id = l.destination_id
            AND a.claim_no = u.claim_no)
   AND ((SELECT has_table_privilege('leases'::regclass, 'SELECT'))
        OR EXISTS (
             SELECT FROM messages m
              WHERE m.id = u.message_id
                AND m.tenant_id = nullif(current_setting('waybill.tenant_id', true), '')));
