-- Claims in order of creation, for workers whose contract is that of a plain outbox table: whatever is due or
-- quarantined, the oldest message first. claim differs: it sorts a retry by its retry time, and the messages of an
-- expired lease wait for their retry delay and are then claimed alone.

-- Puts deliveries of this destination that were claimed before, and are due or quarantined, back to their first place
-- in the queue: the time of the enqueue, or the one that the producer gave. Dead letters that an operator has retried,
-- and replays, are among them. delay_ms -1 marks them, so that later calls pass over them. Deliveries with a key have
-- their place in their lane. Locked rows are skipped, because another claim has them.
CREATE OR REPLACE FUNCTION restore_places(p_destination_id int)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  UPDATE deliveries d
     SET available_at = p.place, delay_ms = -1, quarantined = false
    FROM (SELECT x.message_id, coalesce(m.available_at, m.created_at) AS place
            FROM (SELECT r.message_id
                    FROM deliveries r
                   WHERE r.destination_id = p_destination_id
                     AND r.claim_no > 0
                     AND r.key_id IS NULL
                     AND (r.available_at <= v_now OR r.quarantined)
                     AND (r.delay_ms IS DISTINCT FROM -1 OR r.quarantined)
                     FOR UPDATE SKIP LOCKED) x
           CROSS JOIN LATERAL (SELECT * FROM messages y WHERE y.id = x.message_id OFFSET 0) m) p
   WHERE d.message_id = p.message_id
     AND d.destination_id = p_destination_id;
END $$;

-- Claims like claim, in order of creation (or of the due time that the producer gave), then id: first tries, retries
-- that are due, messages of expired leases, retried dead letters and replays alike. An expired lease is ended by this
-- call, and its messages are claimed by it, without a delay and together with others. So a message that kills its
-- worker costs the messages that are claimed with it a try, too. Messages with a key keep the order of their key and
-- are claimed as claim does; in the answer they have their place by creation.
CREATE OR REPLACE FUNCTION claim_in_order(
  destination  text,
  token        uuid,
  max_messages int DEFAULT 100,
  lease        interval DEFAULT '30 seconds')
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, created_at timestamptz, sequence bigint, previous_sequence bigint,
  namespace text, topic text, tenant_id text, key text, dedupe_key text, aggregate_type text, aggregate_id text,
  headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM assert_read_committed('claim');
  PERFORM reap();
  PERFORM restore_places((find_destination(claim_in_order.destination)).id);
  RETURN QUERY
    SELECT c.*
      FROM claim(claim_in_order.destination, claim_in_order.token, claim_in_order.max_messages,
                 lease => claim_in_order.lease) c
      LEFT JOIN LATERAL (
            SELECT m.available_at
              FROM messages m
             WHERE m.id = c.message_id
            OFFSET 0) g ON true
     ORDER BY coalesce(g.available_at, c.created_at), c.message_id;
END $$;
