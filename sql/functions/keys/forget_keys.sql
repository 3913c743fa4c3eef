-- Forgetting keys (optional): removes keys that are no longer used. Each key has a row in keys, and one in lanes for
-- each destination. Each call is one short transaction that checks a slice of a table, in the order of its primary key,
-- from where the last call stopped. It never waits for a lock: a locked key stays until the next pass through the
-- table.

-- Checks the arguments of forget_keys and forget_positions. Returns the time before which a row must have been used
-- last to be forgotten; null keeps all rows.
CREATE OR REPLACE FUNCTION forget_before(p_what text, p_older_than interval, p_batch int)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  IF p_older_than IS NULL THEN RETURN NULL; END IF;
  PERFORM checked_interval('p_older_than', p_older_than, '30 days', '100 years');
  PERFORM assert_read_committed('forgetting ' || p_what);
  RETURN now() - p_older_than;
END $$;

-- Scans the next p_batch keys and deletes those unused for p_older_than with no message in the log. A message that is
-- pending, in flight, dead or unrouted stays in the log, and with it the key. A producer locks the row of its
-- key, so it either keeps the key, or finds none and starts a new one at 1. p_older_than null keeps all keys. looked_at
-- is less than p_batch at the end of a pass; the next call starts another pass. A key that a retention floor of its
-- namespace protects stays.
CREATE OR REPLACE FUNCTION forget_keys(
  p_older_than  interval,
  p_batch       int DEFAULT 1000,
  OUT looked_at int,
  OUT forgotten int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '200ms' SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
DECLARE
  v_before   timestamptz := forget_before('keys', p_older_than, p_batch);
  v_position bigint;
  v_last     bigint;
  v_ids      bigint[];
BEGIN
  looked_at := 0;
  forgotten := 0;
  IF v_before IS NULL THEN RETURN; END IF;
  SELECT coalesce(r.position[1], 0)
    INTO v_position
    FROM maintenance_runs r
   WHERE r.task = 'keys'
     FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;

  SELECT count(*), max(x.id), array_agg(x.id) FILTER (WHERE x.last_used_at < v_before)
    INTO looked_at, v_last, v_ids
    FROM (SELECT s.id, s.last_used_at
            FROM keys s
           WHERE s.id > v_position
           ORDER BY s.id
           LIMIT p_batch) x;
  IF v_ids IS NOT NULL THEN
    v_ids := ARRAY (
      SELECT s.id
        FROM keys s
       WHERE s.id = ANY (v_ids)
         AND s.last_used_at < v_before
         AND NOT EXISTS (
               SELECT FROM retention_floors f
                WHERE (f.namespace IS NULL OR f.namespace = s.namespace)
                  AND s.last_used_at >= expired_before(f.keys_days))
         FOR UPDATE OF s SKIP LOCKED);
    -- a separate statement, so that its snapshot is newer than the locks
    DELETE FROM keys s
     WHERE s.id = ANY (v_ids)
       AND (SELECT 1 FROM messages m WHERE m.key_id = s.id LIMIT 1) IS NULL;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
  END IF;
  UPDATE maintenance_runs
     SET position = CASE WHEN looked_at = p_batch THEN ARRAY[v_last] END
   WHERE task = 'keys';
END $$;

-- Scans the next p_batch lanes and deletes idle ones whose key is gone. A lane stays while a lease holds it, while it
-- is due or blocked, and while a delivery is pending in it, because its ticket may not be processed yet.
CREATE OR REPLACE FUNCTION forget_lanes(p_batch int DEFAULT 1000, OUT looked_at int, OUT forgotten int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '200ms' SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
DECLARE
  v_position bigint[];
  v_last     bigint[];
  v_lanes    tid[];
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  PERFORM assert_read_committed('forgetting lanes');
  looked_at := 0;
  forgotten := 0;
  SELECT coalesce(r.position, '{0,0}')
    INTO v_position
    FROM maintenance_runs r
   WHERE r.task = 'lanes'
     FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;

  SELECT count(*), max(ARRAY[x.destination_id, x.key_id]),
         array_agg(x.tid) FILTER (
           WHERE x.idle AND (SELECT 1 FROM keys s WHERE s.id = x.key_id LIMIT 1) IS NULL)
    INTO looked_at, v_last, v_lanes
    FROM (SELECT l.ctid AS tid, l.destination_id::bigint AS destination_id, l.key_id,
                 l.available_at IS NULL AND l.lease_id IS NULL AND l.blocked_by IS NULL AS idle
            FROM lanes l
           WHERE (l.destination_id, l.key_id) > (v_position[1]::int, v_position[2])
           ORDER BY l.destination_id, l.key_id
           LIMIT p_batch) x;
  IF v_lanes IS NOT NULL THEN
    v_lanes := ARRAY (
      SELECT l.ctid
        FROM lanes l
       WHERE l.ctid = ANY (v_lanes)
         AND l.available_at IS NULL
         AND l.lease_id IS NULL
         AND l.blocked_by IS NULL
         FOR UPDATE SKIP LOCKED);
    -- a separate statement, so that its snapshot is newer than the locks; a ctid may hold another row by now
    DELETE FROM lanes l
     WHERE l.ctid = ANY (v_lanes)
       AND (SELECT 1 FROM keys s WHERE s.id = l.key_id LIMIT 1) IS NULL
       AND (SELECT 1
              FROM deliveries d
             WHERE d.destination_id = l.destination_id
               AND d.key_id = l.key_id
             LIMIT 1) IS NULL;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
  END IF;
  UPDATE maintenance_runs
     SET position = CASE WHEN looked_at = p_batch THEN v_last END
   WHERE task = 'lanes';
END $$;
