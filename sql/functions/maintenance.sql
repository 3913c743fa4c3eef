-- Housekeeping in short transactions: each function does one batch and says how many rows that was, and
-- its caller (a relay, a drain, a person in psql) pauses and calls again until it gets 0.

-- True for one caller at a time, until the task has been done after its due time. It is held for p_held_ms, and
-- held on to by asking again; when the holder dies, the next caller takes it over. The day counts as done at
-- the end (end_maintenance), so that a crash in the middle loses nothing.
CREATE OR REPLACE FUNCTION begin_maintenance(p_task text, p_due timestamptz, p_holder uuid, p_held_ms int) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  WITH begun AS (
    INSERT INTO maintenance_runs AS r (task, holder, held_until)
    VALUES (p_task, p_holder, clock_timestamp() + p_held_ms * interval '1 ms')
    ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
     WHERE r.done_at < p_due AND (r.holder = p_holder OR r.held_until < clock_timestamp())
    RETURNING 1)
  SELECT count(*) > 0 FROM begun
$$;

CREATE OR REPLACE FUNCTION end_maintenance(p_task text, p_holder uuid) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  UPDATE maintenance_runs SET done_at = clock_timestamp(), held_until = '-infinity' WHERE task = p_task AND holder = p_holder
$$;

-- Kept for at least 30 days, and for as long as its message waits, is held, is dead or is unrouted: a shorter
-- memory would let a late repeat through. Keys that must stay are passed over at each call; a caller with many
-- passes on the last id that it was given, so that they are passed over once.
CREATE OR REPLACE FUNCTION prune_dedupe_keys(
  p_older_than interval, p_batch int DEFAULT 1000, p_after uuid DEFAULT NULL, OUT pruned int, OUT last uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  v_before uuid := id_at(now() - p_older_than);
  v_after  uuid := coalesce(p_after, '00000000-0000-0000-0000-000000000000');
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  IF p_older_than IS NOT NULL THEN PERFORM checked_interval('p_older_than', p_older_than, '30 days', '100 years'); END IF;
  -- One statement, so one snapshot: a message that is claimed meanwhile is still seen in one of its places.
  -- Sub-queries with LIMIT keep the planner to one index look-up per key.
  WITH ended AS (
    DELETE FROM dedupe_keys WHERE ctid = ANY (ARRAY (
      SELECT k.ctid FROM dedupe_keys k
       WHERE k.message_id > v_after AND k.message_id < v_before
         AND (SELECT 1 FROM deliveries d WHERE d.message_id = k.message_id LIMIT 1) IS NULL
         AND (SELECT 1 FROM dead_letters d WHERE d.message_id = k.message_id LIMIT 1) IS NULL
         AND (SELECT 1 FROM unrouted_messages u WHERE u.message_id = k.message_id LIMIT 1) IS NULL
         AND k.message_id <> ALL (ARRAY (SELECT i.id FROM leases l, unnest(l.message_ids) i(id) WHERE i.id < v_before))
       ORDER BY k.message_id LIMIT p_batch FOR UPDATE SKIP LOCKED))
    RETURNING message_id)
  SELECT count(*), coalesce((array_agg(message_id ORDER BY message_id DESC))[1], p_after) INTO pruned, last FROM ended;
END $$;

-- Kept for at least 30 days, as dedupe keys are: a message may be replayed after weeks.
CREATE OR REPLACE FUNCTION prune_inbox(p_older_than interval, p_batch int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
  v_count int;
BEGIN
  IF p_older_than < interval '30 days' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the inbox remembers for 30 days at least, not %s', p_older_than);
  END IF;
  DELETE FROM inbox WHERE ctid = ANY (ARRAY (
    SELECT i.ctid FROM inbox i WHERE i.processed_at < now() - p_older_than
     ORDER BY i.processed_at LIMIT p_batch FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- Null, as everywhere, keeps them for ever.
CREATE OR REPLACE FUNCTION prune_dead_letters(p_older_than interval, p_batch int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  IF p_older_than IS NULL THEN RETURN 0; END IF;
  PERFORM checked_interval('p_older_than', p_older_than, '0', '100 years');
  RETURN discard_dead_letters(dead_before => now() - p_older_than, max_count => p_batch, actor => 'retention',
    only_those => 'harmless');
END $$;

-- Unrouted messages go with their day.
CREATE OR REPLACE FUNCTION prune_unrouted(p_batch int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET timezone = 'UTC' AS $$
DECLARE
  v_count int;
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  DELETE FROM unrouted_messages WHERE ctid = ANY (ARRAY (
    SELECT u.ctid FROM unrouted_messages u
     WHERE u.message_id < id_at((SELECT min(day)::timestamp AT TIME ZONE 'UTC' FROM partition_bounds('messages') WHERE NOT detaching))
     ORDER BY u.message_id LIMIT p_batch FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;
