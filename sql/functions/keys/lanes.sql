-- Lanes: deliver the messages of one key to one destination in sequence, under one lease at a time. This file has the
-- rules for all files here, and the tickets that make lanes due. Claims: lane_claims.sql. Endings: lane_endings.sql.
-- Blocking and parking: lane_blocks.sql.
--
-- Who changes a lane's row:
--   producers   never: they insert a ticket in the transaction that enqueues the message
--   relays      process tickets, which makes idle lanes due; claim due lanes; free and block the lanes of their own
--               leases; correct lanes that a wrong clock has dated (upkeep/misdated.sql); set the tenant '' of lanes
--               without one when fairness begins (fairness/fairness.sql); delete lanes of forgotten keys
--               (forget_keys.sql)
--   operators   unblock lanes, and block them again (block_again)
--   definitions that lower max_attempts: block lanes of messages that die of it (store_destination)
-- Each of them locks the row first, and then reads the pending deliveries with a new snapshot. A lane becomes idle only
-- if that read finds nothing. A message that commits later has left a ticket, and a ticket is deleted only under the
-- lane's lock. So a new message is never overlooked by a lane that is just becoming idle.
--
-- Only these ever wait for a locked lane: the relay that holds its lease, operators, and store_destination. wake_lanes
-- and claim_lanes skip locked lanes and come back to them. Two relays must not create the same lane at once, because
-- one insert would wait for the other's transaction. So a relay first locks the lane's first delivery, and skips the
-- lane if another relay has that lock.

-- Processes tickets: creates missing lanes and makes idle ones due. Returns the number of tickets processed.
CREATE OR REPLACE FUNCTION wake_lanes(p_destination destinations, p_max_tickets int)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_now         timestamptz := clock_timestamp();
  v_tickets     tid[];
  v_ticket_keys bigint[];
  v_keys        bigint[];
  v_rechecks    bigint[];
  v_locked      bigint[];
  v_heads       tid[];
  v_made        bigint[];
  v_gone        bigint[];
  v_idle        bigint[];
  v_blocked     bigint[];
  v_last        bigint := 0;
  v_found       int;
  v_processed   int := 0;
BEGIN
  -- several rounds: tickets that must stay must not hide the tickets behind them
  FOR v_round IN 1..10 LOOP
    SELECT array_agg(x.tid), array_agg(x.key_id), array_agg(DISTINCT x.key_id),
           coalesce(array_agg(DISTINCT x.key_id) FILTER (WHERE x.recheck), '{}'), max(x.id)
      INTO v_tickets, v_ticket_keys, v_keys, v_rechecks, v_last
      FROM (SELECT t.ctid AS tid, t.id, t.key_id, t.recheck
              FROM lane_tickets t
             WHERE t.destination_id = p_destination.id
               AND t.id > v_last
             ORDER BY t.id
             LIMIT p_max_tickets
               FOR UPDATE SKIP LOCKED) x;
    EXIT WHEN v_tickets IS NULL;
    v_found := cardinality(v_tickets);

    SELECT coalesce(array_agg(x.key_id), '{}'),
           array_agg(x.key_id) FILTER (WHERE x.blocked_by IS NOT NULL),
           array_agg(x.key_id) FILTER (
             WHERE x.lease_id IS NULL
               AND (x.available_at IS NULL OR (x.available_at > v_now AND x.key_id = ANY (v_rechecks))))
      INTO v_locked, v_blocked, v_idle
      FROM (SELECT l.key_id, l.available_at, l.lease_id, l.blocked_by
              FROM lanes l
             WHERE l.destination_id = p_destination.id
               AND l.key_id = ANY (v_keys)
               FOR UPDATE SKIP LOCKED) x;
    IF v_idle IS NOT NULL THEN
      UPDATE lanes l
         SET available_at = v_now
       WHERE l.destination_id = p_destination.id
         AND l.key_id = ANY (v_idle);
    END IF;
    v_heads := NULL;
    v_made := '{}';
    v_gone := '{}';
    IF cardinality(v_locked) < cardinality(v_keys) THEN
      -- for each key without a lane, its first pending delivery; if there is none, the message is gone
      SELECT array_agg(h.tid) FILTER (WHERE h.tid IS NOT NULL),
             coalesce(array_agg(i.id) FILTER (WHERE h.tid IS NULL), '{}')
        INTO v_heads, v_gone
        FROM unnest(v_keys) i(id)
        LEFT JOIN LATERAL (
              SELECT d.ctid AS tid
                FROM deliveries d
               WHERE d.destination_id = p_destination.id
                 AND d.key_id = i.id
               ORDER BY d.sequence
               LIMIT 1) h ON true
       WHERE (SELECT 1
                FROM lanes l
               WHERE l.destination_id = p_destination.id
                 AND l.key_id = i.id
               LIMIT 1) IS NULL;
    END IF;
    IF v_heads IS NOT NULL THEN
      WITH heads AS MATERIALIZED (
        SELECT d.key_id, d.namespace, nullif(d.tenant_id, '') AS tenant_id
          FROM deliveries d
         WHERE d.ctid = ANY (v_heads)
           FOR UPDATE SKIP LOCKED),
      made AS (
        INSERT INTO lanes (destination_id, key_id, available_at, namespace, tenant_id)
        -- fairness is read again: p_destination was read before this transaction had an id, see has_fairness
        SELECT p_destination.id, h.key_id, v_now, h.namespace,
               fair_tenant(
                 (SELECT x.fairness FROM destinations x WHERE x.id = p_destination.id),
                 h.tenant_id)
          FROM heads h
         ORDER BY h.key_id
        ON CONFLICT DO NOTHING
        RETURNING key_id)
      SELECT coalesce(array_agg(key_id), '{}') INTO v_made FROM made;
    END IF;
    IF v_blocked IS NOT NULL AND p_destination.when_dead = 'park' THEN
      PERFORM park_lanes(p_destination.id, v_blocked);
    END IF;

    -- keep the tickets of lanes that another session has locked or is creating; delete those of messages that are gone
    IF cardinality(v_locked) + cardinality(v_made) < cardinality(v_keys) THEN
      v_tickets := ARRAY (
        SELECT t.tid
          FROM unnest(v_tickets, v_ticket_keys) t(tid, key_id)
         WHERE t.key_id IN (SELECT unnest(v_locked || v_made || v_gone)));
    END IF;
    DELETE FROM lane_tickets t WHERE t.ctid = ANY (v_tickets);
    v_processed := v_processed + cardinality(v_tickets);
    EXIT WHEN v_found < p_max_tickets OR v_processed > 0;
  END LOOP;
  RETURN v_processed;
END $$;

-- Inserts tickets that make relays check these lanes again, because their first messages may have changed.
CREATE OR REPLACE FUNCTION recheck_lanes(p_destination_ids int[], p_keys bigint[])
RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  INSERT INTO lane_tickets (destination_id, key_id, recheck)
  SELECT DISTINCT t.destination_id, t.key_id, true
    FROM unnest(p_destination_ids, p_keys) t(destination_id, key_id)
   WHERE t.key_id IS NOT NULL
$$;
