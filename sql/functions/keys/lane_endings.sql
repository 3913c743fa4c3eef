-- Ends of messages with a key: the transaction that ends the last message of a lane in its lease frees the lane, or
-- blocks it behind a dead letter. See lanes.sql.

-- Locks the lanes of several leases before end_lanes visits them one by one: all in one order, because an operator may
-- lock several of them too. Each is looked up, so other lanes cost nothing.
CREATE OR REPLACE FUNCTION lock_leased_lanes(p_leases leases[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_nestloop = on SET jit = off
AS $$
BEGIN
  PERFORM
     FROM (SELECT DISTINCT x.destination_id, k.key_id
             FROM unnest(p_leases) x, unnest(x.key_ids) k(key_id)
            WHERE k.key_id IS NOT NULL
            ORDER BY x.destination_id, k.key_id) w
    CROSS JOIN LATERAL (
          SELECT
            FROM lanes l
           WHERE l.destination_id = w.destination_id
             AND l.key_id = w.key_id
             FOR UPDATE) l;
END $$;

-- Updates lanes after a part of a lease has ended: blocks the lanes of dead messages if the destination asks for it,
-- and frees the lanes of which this lease holds no more messages.
CREATE OR REPLACE FUNCTION end_lanes(p_lease leases, p_ended uuid[], p_when_dead text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_lowest  uuid := (SELECT i FROM unnest(p_lease.message_ids) i ORDER BY i LIMIT 1);
  v_highest uuid := (SELECT i FROM unnest(p_lease.message_ids) i ORDER BY i DESC LIMIT 1);
  v_keys    bigint[];
  v_lasts   bigint[];
  v_blocked bigint[];
BEGIN
  -- all locks in one sorted statement, because an operator may lock several of these lanes too
  PERFORM
     FROM lanes
    WHERE destination_id = p_lease.destination_id
      AND lease_id = p_lease.id
      AND key_id = ANY (p_lease.key_ids)
    ORDER BY key_id
      FOR UPDATE;
  IF p_when_dead <> 'continue' THEN PERFORM block_lanes(p_lease.destination_id, p_ended); END IF;

  SELECT array_agg(x.key_id), array_agg(x.last)
    INTO v_keys, v_lasts
    FROM (SELECT u.key_id,
                 coalesce(max(u.sequence) FILTER (
                   WHERE a.state IN ('dispatched', 'discarded')
                      OR (a.state = 'failed' AND p_when_dead = 'continue')), 0) AS last
            FROM unnest(p_lease.message_ids, p_lease.claim_nos, p_lease.key_ids, p_lease.sequences)
                 u(message_id, claim_no, key_id, sequence)
            LEFT JOIN LATERAL (
                  SELECT t.state
                    FROM attempts t
                   WHERE t.message_id = u.message_id
                     AND t.message_id BETWEEN v_lowest AND v_highest
                     AND t.destination_id = p_lease.destination_id
                     AND t.claim_no = u.claim_no
                   LIMIT 1) a ON true
           WHERE u.key_id IN (
                   SELECT e.key_id
                     FROM unnest(p_lease.message_ids, p_lease.key_ids) e(message_id, key_id)
                    WHERE e.message_id IN (SELECT unnest(p_ended)))
           GROUP BY u.key_id
          HAVING bool_and(a.state IS NOT NULL)) x;
  IF v_keys IS NOT NULL THEN
    PERFORM free_lanes(p_lease.destination_id, p_lease.id, v_keys, v_lasts);
  END IF;
  IF p_when_dead = 'park' THEN
    v_blocked := ARRAY (
      SELECT l.key_id
        FROM lanes l
       WHERE l.destination_id = p_lease.destination_id
         AND l.key_id = ANY (p_lease.key_ids)
         AND l.blocked_by IS NOT NULL);
    IF v_blocked <> '{}' THEN PERFORM park_lanes(p_lease.destination_id, v_blocked); END IF;
  END IF;
END $$;

-- Frees lanes of a lease whose messages have all ended: a lane becomes due when its next message is due, or idle.
-- p_lasts: for each lane, the last sequence that has ended for good.
CREATE OR REPLACE FUNCTION free_lanes(p_destination_id int, p_lease_id uuid, p_keys bigint[], p_lasts bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_waiting boolean;
BEGIN
  PERFORM
     FROM lanes
    WHERE destination_id = p_destination_id
      AND key_id = ANY (p_keys)
      AND lease_id = p_lease_id
    ORDER BY key_id
      FOR UPDATE;
  -- A separate statement, so that its snapshot is newer than the locks. Joining by ctid leaves the planner one plan.
  WITH freed AS (
    UPDATE lanes l
       SET lease_id = NULL, last_sequence = greatest(l.last_sequence, h.last), available_at = h.available_at
      FROM (SELECT x.tid, s.last,
                   (SELECT d.available_at
                      FROM deliveries d
                     WHERE d.destination_id = p_destination_id
                       AND d.key_id = s.key_id
                     ORDER BY d.sequence
                     LIMIT 1) AS available_at
              FROM unnest(p_keys, p_lasts) s(key_id, last)
             CROSS JOIN LATERAL (
                    SELECT i.ctid AS tid
                      FROM lanes i
                     WHERE i.destination_id = p_destination_id
                       AND i.key_id = s.key_id
                       AND i.lease_id = p_lease_id
                    OFFSET 0) x
            OFFSET 0) h
     WHERE l.ctid = h.tid
    RETURNING l.available_at)
  SELECT bool_or(available_at IS NOT NULL) INTO v_waiting FROM freed;
  -- the relay that claims these lanes next may be idle
  IF v_waiting THEN PERFORM notify_relays(ARRAY[p_destination_id]); END IF;
END $$;
