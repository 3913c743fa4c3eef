-- Misdated deliveries: their due time was computed while the database's clock ran ahead. After the correction it lies
-- in the future, and they would wait until then, as would later messages of their keys. A delivery was queued at
-- available_at minus delay_ms; if that is later than now, the clock was wrong. Such a delivery becomes due after its
-- delay, counted from now. A due time that the producer gave does not come from the clock, and is never changed.

-- How far in the future a time may lie before the clock counts as wrong. Corrections by a time service are smaller, and
-- waiting a minute longer does no harm.
CREATE OR REPLACE FUNCTION clock_tolerance() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT interval '1 minute'
$$;

-- Whether a delivery was queued at a time in the future. The planner inlines the function, since a call for each
-- delivery would take ten times as long. For that it is STABLE, as its subtraction of an interval is, and has no
-- search_path: its body is parsed when it is created.
CREATE OR REPLACE FUNCTION is_misdated(p_available_at timestamptz, p_delay_ms bigint, p_now timestamptz) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN p_delay_ms IS DISTINCT FROM -1
  AND p_available_at - coalesce(p_delay_ms, 0) * interval '1 ms' > p_now + clock_tolerance();

-- The misdated deliveries of a destination, and the keys whose lane waits longer than their first message. p_most:
-- check only the p_most deliveries and keys that are due last, because a clock that ran far ahead shows there.
CREATE OR REPLACE FUNCTION find_misdated(p_destination_id int, p_most int DEFAULT NULL)
RETURNS TABLE (message_id uuid, key_id bigint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY
    SELECT f.message_id, NULL::bigint
      FROM (SELECT d.message_id, d.available_at, d.delay_ms
              FROM deliveries d
             WHERE d.destination_id = p_destination_id
               AND d.key_id IS NULL
               AND d.available_at > v_now + clock_tolerance()
             ORDER BY d.available_at DESC, d.message_id DESC
             LIMIT p_most) f
     WHERE is_misdated(f.available_at, f.delay_ms, v_now);
  RETURN QUERY
    SELECT h.message_id, f.key_id
      FROM (SELECT l.key_id, l.available_at
              FROM lanes l
             WHERE l.destination_id = p_destination_id
               AND l.available_at > v_now + clock_tolerance()
               AND l.available_at IS NOT NULL
               AND l.blocked_by IS NULL
             ORDER BY l.available_at DESC, l.key_id DESC
             LIMIT p_most) f
     CROSS JOIN LATERAL (
            SELECT d.message_id, d.available_at, d.delay_ms
              FROM deliveries d
             WHERE d.destination_id = p_destination_id
               AND d.key_id = f.key_id
             ORDER BY d.sequence
             LIMIT 1) h
     WHERE h.available_at < f.available_at
        OR is_misdated(h.available_at, h.delay_ms, v_now);
END $$;

-- The number of misdated deliveries and keys, among the 1,000 of each that are due last.
CREATE OR REPLACE FUNCTION count_misdated(p_destination_id int) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT count(*) FROM find_misdated(p_destination_id, 1000)
$$;

-- Makes lanes that wait longer than their first message due with it. Returns the keys of the lanes that it changed;
-- lanes that another session has locked are left to the next call.
CREATE OR REPLACE FUNCTION correct_lanes(p_destination_id int, p_keys bigint[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_locked    bigint[];
  v_corrected bigint[];
BEGIN
  v_locked := ARRAY (
    SELECT l.key_id
      FROM lanes l
     WHERE l.destination_id = p_destination_id
       AND l.key_id = ANY (p_keys)
       AND l.available_at > clock_timestamp() + clock_tolerance()
       AND l.blocked_by IS NULL
       FOR UPDATE SKIP LOCKED);
  -- a separate statement, so that its snapshot is newer than the locks
  WITH corrected AS (
    UPDATE lanes l
       SET available_at = h.available_at
      FROM unnest(v_locked) s(key_id)
     CROSS JOIN LATERAL (
            SELECT d.available_at
              FROM deliveries d
             WHERE d.destination_id = p_destination_id
               AND d.key_id = s.key_id
             ORDER BY d.sequence
             LIMIT 1) h
     WHERE l.destination_id = p_destination_id
       AND l.key_id = s.key_id
       AND h.available_at < l.available_at
    RETURNING l.key_id)
  SELECT coalesce(array_agg(c.key_id), '{}') INTO v_corrected FROM corrected c;
  RETURN v_corrected;
END $$;

-- Corrects the due times of misdated deliveries. Relays call it every few seconds; an operator can call it at any time.
-- Returns how many deliveries it has corrected, and how many keys that waited longer than their first message. All
-- misdated deliveries of a key are corrected together. Rows that another session has locked are left to the next call.
CREATE OR REPLACE FUNCTION release_misdated(actor text DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_now   timestamptz := clock_timestamp();
  v_id    int;
  v_name  text;
  v_ids   uuid[];
  v_keys  bigint[];
  v_moved bigint[];
  v_count int;
  v_total int := 0;
BEGIN
  FOR v_id, v_name IN
    SELECT d.id, d.name
      FROM loaded_destinations() x(id)
      JOIN destinations d ON d.id = x.id
     ORDER BY d.id
  LOOP
    SELECT array_agg(f.message_id), coalesce(array_agg(DISTINCT f.key_id) FILTER (WHERE f.key_id IS NOT NULL), '{}')
      INTO v_ids, v_keys
      FROM find_misdated(v_id) f;
    CONTINUE WHEN v_ids IS NULL;
    v_ids := v_ids || ARRAY (
      SELECT d.message_id
        FROM deliveries d
       WHERE d.destination_id = v_id
         AND d.key_id = ANY (v_keys)
         AND d.key_id IS NOT NULL
         AND d.message_id <> ALL (v_ids)
         AND is_misdated(d.available_at, d.delay_ms, v_now));
    WITH moved AS (
      UPDATE deliveries d
         SET available_at = v_now + coalesce(d.delay_ms, 0) * interval '1 ms'
       WHERE d.ctid = ANY (ARRAY (
               SELECT x.ctid
                 FROM deliveries x
                WHERE x.message_id = ANY (v_ids)
                  AND x.destination_id = v_id
                  AND is_misdated(x.available_at, x.delay_ms, v_now)
                ORDER BY x.message_id
                  FOR UPDATE SKIP LOCKED))
      RETURNING d.key_id)
    SELECT count(*), array_agg(m.key_id) FILTER (WHERE m.key_id IS NOT NULL)
      INTO v_count, v_moved
      FROM moved m;
    SELECT v_count + count(*)
      INTO v_count
      FROM unnest(correct_lanes(v_id, v_keys)) c(key_id)
     WHERE c.key_id <> ALL (coalesce(v_moved, '{}'));
    CONTINUE WHEN v_count = 0;
    PERFORM record_action(actor, 'release_misdated', jsonb_build_object('destination', v_name), v_count);
    PERFORM notify_relays(ARRAY[v_id]);
    v_total := v_total + v_count;
  END LOOP;
  RETURN v_total;
END $$;
