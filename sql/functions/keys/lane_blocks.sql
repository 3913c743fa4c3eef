-- Blocked lanes: a dead letter blocks its key at a destination that asks for it, until an operator unblocks it. The
-- messages behind it wait, or are parked as dead letters and return with it. See lanes.sql.

-- Blocks the lanes of dead messages, each by its first one; later dead messages of the lane are parked behind it and
-- return with it. Messages that are not dead are ignored. Returns the keys whose lanes were open before.
CREATE OR REPLACE FUNCTION block_lanes(p_destination_id int, p_message_ids uuid[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_blocked bigint[];
BEGIN
  WITH dead AS (
    SELECT DISTINCT ON (d.key_id) d.key_id, d.message_id
      FROM dead_letters d
     WHERE d.destination_id = p_destination_id
       AND d.message_id = ANY (p_message_ids)
       AND d.key_id IS NOT NULL
     ORDER BY d.key_id, d.sequence),
  found AS MATERIALIZED (
    SELECT d.message_id, x.tid
      FROM dead d
     CROSS JOIN LATERAL (
            SELECT i.ctid AS tid
              FROM lanes i
             WHERE i.destination_id = p_destination_id
               AND i.key_id = d.key_id
               AND i.blocked_by IS NULL
            OFFSET 0) x),
  blocked AS (
    UPDATE lanes l
       SET blocked_by = f.message_id
      FROM found f
     WHERE l.ctid = f.tid
    RETURNING l.key_id)
  SELECT array_agg(key_id) INTO v_blocked FROM blocked;
  UPDATE dead_letters d
     SET reason = 'parked'
   WHERE d.destination_id = p_destination_id
     AND d.message_id = ANY (p_message_ids)
     AND d.message_id <> (
           SELECT l.blocked_by
             FROM lanes l
            WHERE l.destination_id = p_destination_id
              AND l.key_id = d.key_id);
  RETURN v_blocked;
END $$;

-- Parks lanes: moves the messages behind a dead one to the dead letters. They return with it, in order.
CREATE OR REPLACE FUNCTION park_lanes(p_destination_id int, p_keys bigint[])
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count int;
BEGIN
  WITH waiting AS (
    DELETE FROM deliveries d
     WHERE d.destination_id = p_destination_id
       AND d.key_id = ANY (p_keys)
    RETURNING d.*)
  INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, created_at,
                            key_id, sequence, bytes, namespace, topic, tenant_id, key, dedupe_key, aggregate_type,
                            aggregate_id, headers, payload)
  SELECT w.message_id, p_destination_id, clock_timestamp(), w.claim_no, w.tries, 'parked', 'parked', m.created_at,
         w.key_id, w.sequence, m.bytes, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type,
         m.aggregate_id, m.headers, m.payload
    FROM waiting w
    LEFT JOIN messages m ON m.id = w.message_id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- Unblocks the lanes that these messages block, and requeues the messages parked behind them, in order. p_passed: the
-- key continues without the blocking messages. Returns how many lanes were unblocked and how many messages requeued.
CREATE OR REPLACE FUNCTION unblock_lanes(
  p_destination_ids int[],
  p_blocked_by      uuid[],
  p_passed          boolean,
  OUT unblocked     int,
  OUT unparked      int)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_destinations int[];
  v_keys         bigint[];
BEGIN
  WITH chosen AS (
    SELECT l.destination_id, l.key_id
      FROM unnest(p_destination_ids, p_blocked_by) b(destination_id, message_id)
      JOIN lanes l ON l.destination_id = b.destination_id AND l.blocked_by = b.message_id
     ORDER BY l.destination_id, l.key_id
       FOR UPDATE OF l),
  opened AS (
    UPDATE lanes l
       SET blocked_by = NULL,
           last_sequence = CASE
             WHEN p_passed THEN
               greatest(
                 l.last_sequence,
                 (SELECT m.sequence FROM messages m WHERE m.id = l.blocked_by))
             ELSE
               l.last_sequence
           END
      FROM chosen c
     WHERE l.destination_id = c.destination_id
       AND l.key_id = c.key_id
    RETURNING l.destination_id, l.key_id)
  SELECT array_agg(destination_id), array_agg(key_id), count(*)
    INTO v_destinations, v_keys, unblocked
    FROM opened;
  unparked := 0;
  IF unblocked = 0 THEN RETURN; END IF;
  PERFORM assert_read_committed('opening a key');
  WITH raised AS (
    DELETE FROM dead_letters d
     USING unnest(v_destinations, v_keys) o(destination_id, key_id)
     WHERE d.destination_id = o.destination_id
       AND d.key_id = o.key_id
       AND d.reason = 'parked'
       AND d.payload IS NOT NULL
    RETURNING d.*)
  INSERT INTO deliveries (message_id, destination_id, available_at, claim_no, tries, bytes, namespace, tenant_id,
                          key_id, sequence)
  SELECT r.message_id, r.destination_id, clock_timestamp(), r.claim_no, 0, r.bytes, r.namespace, r.tenant_id,
         r.key_id, r.sequence
    FROM raised r;
  GET DIAGNOSTICS unparked = ROW_COUNT;
  PERFORM recheck_lanes(v_destinations, v_keys);
END $$;

-- Blocks the keys of restored letters again, unless something behind them has ended or is in flight, or their
-- destination does not block keys any more. p_lasts: the last sequence of the lane that a letter blocked, null if it
-- blocked none. A restored letter that was parked stays so only behind an earlier dead letter of its key.
CREATE OR REPLACE FUNCTION block_again(p_destination_ids int[], p_message_ids uuid[], p_keys bigint[], p_lasts bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_targets int[];
  v_keys    bigint[];
BEGIN
  PERFORM
     FROM lanes l
     JOIN unnest(p_destination_ids, p_keys) b(destination_id, key_id)
       ON l.destination_id = b.destination_id AND l.key_id = b.key_id
    ORDER BY l.destination_id, l.key_id
      FOR UPDATE OF l;
  WITH blocked AS (
    UPDATE lanes l
       SET blocked_by = b.message_id, last_sequence = b.last_sequence
      FROM unnest(p_destination_ids, p_message_ids, p_keys, p_lasts)
           b(destination_id, message_id, key_id, last_sequence)
      JOIN dead_letters d ON d.message_id = b.message_id AND d.destination_id = b.destination_id
      JOIN destinations t ON t.id = b.destination_id AND t.when_dead <> 'continue'
     WHERE b.last_sequence IS NOT NULL
       AND l.destination_id = b.destination_id
       AND l.key_id = b.key_id
       AND l.blocked_by IS NULL
       AND l.lease_id IS NULL
       AND l.last_sequence <= d.sequence
    RETURNING l.destination_id, l.key_id, t.when_dead)
  SELECT array_agg(x.destination_id), array_agg(x.key_id)
    INTO v_targets, v_keys
    FROM blocked x
   WHERE x.when_dead = 'park';
  PERFORM park_lanes(p.destination_id, p.keys)
     FROM (SELECT x.destination_id, array_agg(x.key_id) AS keys
             FROM unnest(v_targets, v_keys) x(destination_id, key_id)
            GROUP BY x.destination_id) p;
  -- those that were parked, and restored before the letter that blocks them, wait behind it again
  UPDATE dead_letters d
     SET reason = 'parked'
    FROM unnest(v_targets, v_keys) x(destination_id, key_id)
    JOIN lanes l ON l.destination_id = x.destination_id AND l.key_id = x.key_id
    JOIN dead_letters f ON f.message_id = l.blocked_by AND f.destination_id = l.destination_id
   WHERE d.destination_id = x.destination_id
     AND d.error_code = 'parked'
     AND d.key_id = x.key_id
     AND d.reason <> 'parked'
     AND d.sequence > f.sequence;
  UPDATE dead_letters d
     SET reason = 'rejected'
    FROM unnest(p_destination_ids, p_message_ids) b(destination_id, message_id)
   WHERE d.destination_id = b.destination_id
     AND d.message_id = b.message_id
     AND d.reason = 'parked'
     AND NOT EXISTS (
           SELECT FROM lanes l
             JOIN dead_letters f ON f.message_id = l.blocked_by AND f.destination_id = l.destination_id
            WHERE l.destination_id = d.destination_id
              AND l.key_id = d.key_id
              AND f.sequence < d.sequence);
END $$;
