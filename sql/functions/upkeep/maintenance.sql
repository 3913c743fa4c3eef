-- Maintenance in short transactions: each function removes one batch and returns the number of rows. The caller (a
-- relay, a drain, an operator in psql) pauses and calls again until it gets 0.

-- Takes the hold 'retention' for p_held_ms (at most ten minutes), if the daily retention was not done since p_due.
-- Returns its token, or null: it is done, or another caller does it. renew_hold renews it; if the holder dies, the next
-- caller takes over. The day counts as done only at the end (end_maintenance), so a crash in the middle loses nothing.
-- Relays trust this record: a login that ends a run without doing the work delays their retention. waybill maintain
-- ignores the record.
CREATE OR REPLACE FUNCTION begin_maintenance(p_due timestamptz, p_holder uuid, p_held_ms int) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM checked_number('p_held_ms', p_held_ms, 1, 600000);
  PERFORM
     FROM maintenance_runs r
    WHERE r.task = 'retention'
      -- a time in the future was written before the clock was set back
      AND (r.done_at < p_due OR r.done_at > clock_timestamp() + clock_tolerance())
      FOR UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  RETURN (SELECT h.token FROM take_hold('retention', p_holder, p_held_ms * interval '1 ms') h);
END $$;

-- Records that the retention of the day is done, and releases the hold. False: the hold was lost.
CREATE OR REPLACE FUNCTION end_maintenance(p_token bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM FROM maintenance_runs r WHERE r.task = 'retention' FOR UPDATE;
  IF NOT release_hold('retention', p_token) THEN RETURN false; END IF;
  UPDATE maintenance_runs
     SET done_at = clock_timestamp()
   WHERE task = 'retention';
  RETURN true;
END $$;

-- Forgets old dedupe keys, topic by topic. A key is kept for at least 30 days, for at least as long as the retention
-- floors of its topic say, and while its message is pending, held, dead or unrouted: otherwise a late duplicate would
-- be accepted. Topics that a floor keeps for ever are passed over by one index look-up each. A call has to skip the
-- keys that must stay for another reason; a caller that passes last on as p_after skips only those of the last slot
-- again.
CREATE OR REPLACE FUNCTION prune_dedupe_keys(
  p_older_than interval,
  p_batch      int DEFAULT 1000,
  p_after      text[] DEFAULT NULL,
  OUT pruned   int,
  OUT last     text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
  v_topic     text := coalesce(p_after[1], '');
  v_namespace text := coalesce(p_after[2], '');
  v_after     uuid := coalesce(p_after[3]::uuid, '00000000-0000-0000-0000-000000000000');
  v_before    timestamptz;
  v_next      record;
  v_count     int;
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  pruned := 0;
  last := p_after;
  IF p_older_than IS NULL THEN RETURN; END IF;
  PERFORM checked_interval('p_older_than', p_older_than, '30 days', '100 years');
  LOOP
    SELECT k.topic, k.namespace
      INTO v_next
      FROM dedupe_keys k
     WHERE (k.topic COLLATE "C", k.namespace COLLATE "C", id_slot(k.message_id))
           >= (v_topic, v_namespace, id_slot(v_after))
     ORDER BY k.topic COLLATE "C", k.namespace COLLATE "C", id_slot(k.message_id)
     LIMIT 1;
    EXIT WHEN NOT FOUND;
    IF (v_next.topic, v_next.namespace) <> (v_topic, v_namespace) THEN
      v_after := '00000000-0000-0000-0000-000000000000';
    END IF;
    v_topic := v_next.topic;
    v_namespace := v_next.namespace;
    SELECT least(now() - p_older_than, min(expired_before(f.dedupe_keys_days)))
      INTO v_before
      FROM retention_floors f
     WHERE route_matches(f.topic, f.namespace, NULL, v_topic, v_namespace, NULL);
    IF isfinite(v_before) THEN
      -- One statement and thus one snapshot: a message that is claimed meanwhile is still seen in one of its places.
      -- Sub-queries with LIMIT make it one index look-up per key.
      WITH ended AS (
        DELETE FROM dedupe_keys
         WHERE ctid = ANY (ARRAY (
                 SELECT k.ctid
                   FROM dedupe_keys k
                  WHERE k.topic COLLATE "C" = v_topic
                    AND k.namespace COLLATE "C" = v_namespace
                    AND id_slot(k.message_id) >= id_slot(v_after)
                    AND id_slot(k.message_id) <= id_slot(id_at(v_before))
                    AND k.message_id < id_at(v_before)
                    AND (SELECT 1
                           FROM deliveries d
                          WHERE d.message_id = k.message_id
                          LIMIT 1) IS NULL
                    AND (SELECT 1
                           FROM dead_letters d
                          WHERE d.message_id = k.message_id
                          LIMIT 1) IS NULL
                    AND (SELECT 1
                           FROM unrouted_messages u
                          WHERE u.message_id = k.message_id
                          LIMIT 1) IS NULL
                    AND k.message_id <> ALL (ARRAY (
                          SELECT i.id
                            FROM leases l, unnest(l.message_ids) i(id)
                           WHERE i.id < id_at(v_before)))
                  ORDER BY id_slot(k.message_id)
                  LIMIT p_batch - pruned
                    FOR UPDATE SKIP LOCKED))
        RETURNING message_id)
      SELECT count(*), coalesce((array_agg(message_id ORDER BY message_id DESC))[1], v_after)
        INTO v_count, v_after
        FROM ended;
      pruned := pruned + v_count;
      IF v_count > 0 THEN last := ARRAY[v_topic, v_namespace, v_after::text]; END IF;
      EXIT WHEN pruned = p_batch;
    END IF;
    v_after := 'ffffffff-ffff-ffff-ffff-ffffffffffff';
  END LOOP;
END $$;

-- Forgets what consumers have processed. It is kept for at least 30 days, like dedupe keys, because a message may be
-- replayed after weeks.
CREATE OR REPLACE FUNCTION prune_inbox(p_older_than interval, p_batch int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
DECLARE
  v_count int;
BEGIN
  IF p_older_than < interval '30 days' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_older_than is %s: give at least 30 days', p_older_than);
  END IF;
  DELETE FROM inbox
   WHERE ctid = ANY (ARRAY (
           SELECT i.ctid
             FROM inbox i
            WHERE i.processed_at < now() - p_older_than
            ORDER BY i.processed_at
            LIMIT p_batch
              FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- Discards old dead letters; null keeps them for ever. Letters that a retention floor protects always stay.
CREATE OR REPLACE FUNCTION prune_dead_letters(p_older_than interval, p_batch int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  IF p_older_than IS NULL THEN RETURN 0; END IF;
  PERFORM checked_interval('p_older_than', p_older_than, '0', '100 years');
  RETURN discard_dead_letters(dead_before => now() - p_older_than, max_count => p_batch, actor => 'retention',
                              only_those => 'expired');
END $$;
