-- Quarantine: a delivery whose last holder died is claimed alone, because sending it may have crashed the holder.
-- Another crash then costs no other message of the destination a try. end_claims sets the mark when it ends the lease
-- of a dead holder.

-- Claims one due quarantined delivery, those with the fewest tries first: one without a key, or else the first message
-- of a lane.
CREATE OR REPLACE FUNCTION claim_quarantined(
  p_destination_id int,
  p_lease_id       uuid,
  p_tenant_ids     text[],
  p_namespace      text)
RETURNS taken
LANGUAGE plpgsql VOLATILE
SET enable_sort = off
AS $$
DECLARE
  v_now   timestamptz := clock_timestamp();
  v_row   tid;
  v_keys  bigint[];
  v_lasts bigint[];
BEGIN
  SELECT d.ctid
    INTO v_row
    FROM deliveries d
   WHERE d.destination_id = p_destination_id
     AND d.quarantined
     AND d.key_id IS NULL
     AND d.available_at <= v_now
     AND (SELECT t.paused_at IS NULL FROM destinations t WHERE t.id = p_destination_id)
     AND (p_namespace IS NULL OR d.namespace = p_namespace)
     AND (p_tenant_ids IS NULL OR d.tenant_id = ANY (p_tenant_ids))
   ORDER BY d.tries, d.message_id
   LIMIT 1
     FOR UPDATE SKIP LOCKED;
  IF FOUND THEN RETURN take_deliveries(ARRAY[v_row], ARRAY[0], 0, true); END IF;

  -- the first message of a lane that is due and not blocked
  SELECT array_agg(x.key_id), array_agg(x.last_sequence)
    INTO v_keys, v_lasts
    FROM (SELECT l.key_id, l.last_sequence
            FROM deliveries d
            JOIN lanes l ON l.destination_id = d.destination_id AND l.key_id = d.key_id
           WHERE d.destination_id = p_destination_id
             AND d.quarantined
             AND d.key_id IS NOT NULL
             AND d.available_at <= v_now
             AND (p_namespace IS NULL OR d.namespace = p_namespace)
             AND (p_tenant_ids IS NULL OR d.tenant_id = ANY (p_tenant_ids))
             AND l.available_at <= v_now
             AND l.blocked_by IS NULL
             AND (SELECT t.paused_at IS NULL FROM destinations t WHERE t.id = p_destination_id)
             AND (SELECT x.message_id
                    FROM deliveries x
                   WHERE x.destination_id = p_destination_id
                     AND x.key_id = d.key_id
                   ORDER BY x.sequence
                   LIMIT 1) = d.message_id
           ORDER BY d.tries, d.message_id
           LIMIT 1
             FOR UPDATE OF l SKIP LOCKED) x;
  IF v_keys IS NULL THEN RETURN NULL; END IF;
  RETURN take_from_lanes(p_destination_id, p_lease_id, v_keys, v_lasts, 1, 1, 0, true, false, true);
END $$;
