-- Keys that are used no more are forgotten, for those who want that: each has a row in streams, and one in lanes for
-- each destination. Both tables are looked through in slices, in the order of their keys, from where the last call
-- stopped: a call is one short transaction. Nobody is waited for, and a key that somebody holds stays until the next lap.

-- What forget_keys and forget_positions ask of their callers: the time since which a thing must not have been used to be
-- forgotten, null to keep all of them; what cannot be used is refused.
CREATE OR REPLACE FUNCTION forget_before(p_what text, p_older_than interval, p_batch int) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  IF p_older_than IS NULL THEN RETURN NULL; END IF;
  PERFORM checked_interval('p_older_than', p_older_than, '30 days', '100 years');
  PERFORM assert_read_committed('forgetting ' || p_what);
  RETURN now() - p_older_than;
END $$;

-- Forgets those of the next p_batch keys that had no message for so long and of which none is in the log any more.
-- What waits, is in flight, is dead or is unrouted keeps its day in the log, and so its key. Whoever takes a number
-- holds the row: so a producer keeps its key, or finds none and begins another at 1. Null keeps them for ever.
-- looked_at is less than p_batch at the end of a lap; the next call begins the next one.
CREATE OR REPLACE FUNCTION forget_keys(p_older_than interval, p_batch int DEFAULT 1000, OUT looked_at int, OUT forgotten int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
  v_before   timestamptz := forget_before('keys', p_older_than, p_batch);
  v_position bigint;
  v_last     bigint;
  v_ids      bigint[];
BEGIN
  looked_at := 0;
  forgotten := 0;
  IF v_before IS NULL THEN RETURN; END IF;
  SELECT coalesce(r.position[1], 0) INTO v_position FROM maintenance_runs r WHERE r.task = 'keys' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;

  SELECT count(*), max(x.id), array_agg(x.id) FILTER (WHERE x.last_used_at < v_before) INTO looked_at, v_last, v_ids
    FROM (SELECT s.id, s.last_used_at FROM streams s WHERE s.id > v_position ORDER BY s.id LIMIT p_batch) x;
  IF v_ids IS NOT NULL THEN
    v_ids := ARRAY (SELECT s.id FROM streams s WHERE s.id = ANY (v_ids) AND s.last_used_at < v_before FOR UPDATE SKIP LOCKED);
    -- a statement of its own: its snapshot is younger than the locks
    DELETE FROM streams s
     WHERE s.id = ANY (v_ids) AND (SELECT 1 FROM messages m WHERE m.stream_id = s.id LIMIT 1) IS NULL;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
  END IF;
  UPDATE maintenance_runs SET position = CASE WHEN looked_at = p_batch THEN ARRAY[v_last] END WHERE task = 'keys';
END $$;

-- Forgets those of the next p_batch lanes that are idle and whose key is forgotten. A lane that a lease holds, that is
-- due or that is blocked stays, and so does one in which something waits: its ticket may be on its way.
CREATE OR REPLACE FUNCTION forget_lanes(p_batch int DEFAULT 1000, OUT looked_at int, OUT forgotten int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
DECLARE
  v_position bigint[];
  v_last     bigint[];
  v_lanes    tid[];
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  PERFORM assert_read_committed('forgetting lanes');
  looked_at := 0;
  forgotten := 0;
  SELECT coalesce(r.position, '{-32768,0}') INTO v_position FROM maintenance_runs r WHERE r.task = 'lanes' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;

  SELECT count(*), max(ARRAY[x.destination_id, x.stream_id]), array_agg(x.tid) FILTER (WHERE x.idle
           AND (SELECT 1 FROM streams s WHERE s.id = x.stream_id LIMIT 1) IS NULL)
    INTO looked_at, v_last, v_lanes
    FROM (SELECT l.ctid AS tid, l.destination_id::bigint AS destination_id, l.stream_id,
                 l.available_at IS NULL AND l.lease_id IS NULL AND l.blocked_by IS NULL AS idle
            FROM lanes l WHERE (l.destination_id, l.stream_id) > (v_position[1]::smallint, v_position[2])
           ORDER BY l.destination_id, l.stream_id LIMIT p_batch) x;
  IF v_lanes IS NOT NULL THEN
    v_lanes := ARRAY (SELECT l.ctid FROM lanes l WHERE l.ctid = ANY (v_lanes)
                         AND l.available_at IS NULL AND l.lease_id IS NULL AND l.blocked_by IS NULL FOR UPDATE SKIP LOCKED);
    -- a statement of its own: its snapshot is younger than the locks, and in the place of a row may be another by now
    DELETE FROM lanes l
     WHERE l.ctid = ANY (v_lanes) AND (SELECT 1 FROM streams s WHERE s.id = l.stream_id LIMIT 1) IS NULL
       AND (SELECT 1 FROM deliveries d WHERE d.destination_id = l.destination_id AND d.stream_id = l.stream_id LIMIT 1) IS NULL;
    GET DIAGNOSTICS forgotten = ROW_COUNT;
  END IF;
  UPDATE maintenance_runs SET position = CASE WHEN looked_at = p_batch THEN v_last END WHERE task = 'lanes';
END $$;
